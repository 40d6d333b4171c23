"""Runs that must be refused or must stop: each ends in time, with its exit code, one message, and nothing left half made."""
import functools
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, check_ledgers, in_a_fresh_folder, numpy, parse_arguments, read_record, report, show  # noqa: E402

import behind  # noqa: E402
import copies  # noqa: E402
import disk  # noqa: E402
import exchange  # noqa: E402
import hang  # noqa: E402
import launcher  # noqa: E402
import limits  # noqa: E402
import midrun  # noqa: E402
import saving  # noqa: E402
import stops  # noqa: E402
import storage  # noqa: E402
import streams  # noqa: E402
import user  # noqa: E402
from cases import CASES, DIVERGED, DONE, INPUT, REFUSED  # noqa: E402
from processes import Running  # noqa: E402


def check_case(case, trainer):
    """Complaints about one case of the table."""
    result = trainer.train(case.source or INPUT, case.ranks, case.changes.split(), seconds=30)
    complaints = []
    if result.exit_code != case.exit_code:
        complaints.append(f"exit {case.exit_code} was due")
    complaints += [f"stderr does not say {words}" for words in case.words if not re.search(words, result.stderr)]
    said = [line for line in result.stderr.splitlines() if re.search("[a-z]", line)]
    complaints += [f"said {said.count(line)} times: {line}" for line in dict.fromkeys(said) if said.count(line) > 1]
    if case.exit_code not in (DONE, DIVERGED) and result.output.exists():
        complaints.append(f"refused, yet {result.output} exists")
    if case.exit_code in (DONE, DIVERGED) and not complaints:
        complaints = check_record(case, result)
    return ["; ".join(complaints) + "\n" + show(result)] if complaints else []


def check_record(case, result):
    """Complaints about the record of a run that began: it is closed, its steps are whole, and each that is not finite was told of, once."""
    record = read_record(result.output)
    steps, last = record["steps/step"].tolist(), record["attributes"]
    finite = numpy.isfinite(record["steps/loss"]) & numpy.isfinite(record["steps/grad_norm"])
    not_finite = r"step (\d+): (?:the (?:loss|gradient norm) is|gradients overflow)"
    told = sorted(int(step) for step in re.findall(not_finite, result.stdout + result.stderr))
    scaled = [int(step) for step in re.findall(r"step (\d+): gradients overflowed", result.stdout)]  # fp16 tries again with half the loss scale
    complaints = []
    if last["exit_code"] != case.exit_code or last["complete"] != (case.exit_code == DONE):
        complaints.append(f"the record is closed with {last}")
    if steps != list(range(1, len(steps) + 1)) or not numpy.isfinite(record["steps/learning_rate"]).all():
        complaints.append(f"the record has the steps {steps} with the rates {record['steps/learning_rate']}")
    if told != [step for step, good in zip(steps, finite) if not good]:
        complaints.append(f"steps {told} are told of, the record has the losses {record['steps/loss']}, norms {record['steps/grad_norm']}")
    if case.exit_code == DIVERGED and [step for step, good in zip(steps, finite) if not good and step not in scaled] != steps[-1:]:
        complaints.append(f"a run that stops does so at the first step that is not finite: {record['steps/loss']}, {record['steps/grad_norm']}")
    if len(steps):  # a run that has stopped before its first step was recorded has measured nothing
        complaints += check_ledgers(record)
    return complaints + ([] if case.steps in (None, len(steps)) else [f"{case.steps} steps were due, the record has {steps}"])


def check_kept_output(trainer):
    """47: a folder that holds something is not written to, unless output.overwrite says so."""
    output = trainer.folder / "run-output"
    output.mkdir()
    (output / "precious").write_text("kept")
    complaints = check_case_kept(trainer, output)
    result = trainer.train(INPUT, 2, ["output.overwrite=true"])
    if result.exit_code != DONE or not (output / "run.h5").exists():
        complaints.append("output.overwrite=true: " + show(result))
    return complaints


def check_case_kept(trainer, output):
    result = trainer.train(INPUT, 2)
    if result.exit_code != REFUSED or "run-output" not in result.stderr or "overwrite" not in result.stderr:
        return ["exit 2 and a word on output.overwrite were due\n" + show(result)]
    if sorted(path.name for path in output.iterdir()) != ["precious"]:
        return [f"the refused run left {list(output.iterdir())}"]
    return []


def check_usage(trainer):
    """Bad usage is refused; help and version are not."""
    complaints = []
    for arguments, exit_code in (([], REFUSED), (["trian"], REFUSED), (["train"], REFUSED), (["train", "missing.yaml"], REFUSED),
                                 (["train", "."], REFUSED), (["plan", "run.yaml", "--nonsense"], REFUSED), (["--help"], DONE),
                                 (["--version"], DONE)):
        result = trainer.run(arguments, seconds=30)
        said = result.stdout if exit_code == DONE else result.stderr
        if result.exit_code != exit_code or not said.strip():
            complaints.append(f"{arguments}: exit {exit_code} with a message was due\n{show(result)}")
    for arguments, words in ((["plan", "run.yaml", "--ranks", "4", "--ranks=2"], "--ranks stands twice, with 4 and 2"),
                             (["plan", ""], "a word of the command line is empty"), (["train", ""], "a word of the command line is empty")):
        result = trainer.run(arguments, seconds=30)
        if result.exit_code != REFUSED or words not in result.stderr:
            complaints.append(f"{arguments}: exit {REFUSED} with '{words}' was due\n{show(result)}")
    for arguments in ([], ["trian"], ["train"], ["train", "--foo"], ["plan", "run.yaml", "--nonsense"], ["bench", "foo"]):
        result = trainer.run(arguments, ranks=2, seconds=30)
        said = [line for line in result.stderr.splitlines() if line.startswith("quadrille:")]
        if result.exit_code != REFUSED or len(said) != 1:
            complaints.append(f"{arguments} on 2 ranks: exit {REFUSED} with one message for the job was due\n{show(result)}")
    complaints += check_who_speaks(trainer)
    for command in ("train", "plan", "bench", "inspect", "export", "import"):
        result = trainer.run([command, "--help"], seconds=30)
        if result.exit_code != DONE or f"quadrille {command}" not in result.stdout or result.stderr:
            complaints.append(f"{command} --help: its usage was due\n{show(result)}")
    return complaints


def check_who_speaks(trainer):
    """Bad usage is the first rank's to tell, by the variables of the launcher; it waits for no rank that may never start."""
    complaints = []
    for variables, says in ((["OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"], 1), (["OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1"], 0),
                            (["PMI_SIZE=2", "PMI_RANK=1"], 0), (["SLURM_STEP_NUM_TASKS=2", "PMIX_RANK=1"], 0),
                            (["SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0"], 1), (["SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1"], 0),
                            (["SLURM_NTASKS=2", "SLURM_PROCID=0"], 1), (["SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=1"], 1)):
        result = trainer.run(["plan", "missing.yaml"], seconds=30, environment=[v.split("=") for v in variables])
        if result.exit_code != REFUSED or len(result.stderr.splitlines()) != says:
            complaints.append(f"{variables}: exit {REFUSED} and {says} lines were due\n{show(result)}")
    script = trainer.folder / "first.sh"
    script.write_text(f'#!/bin/sh\n[ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}" = 0 ] || exit 0\nexec {trainer.binary} "$@"\n')
    script.chmod(0o755)
    result = Trainer(script, trainer.environment.get("MPIRUN"), trainer.folder).run(["plan", "missing.yaml"], ranks=2, seconds=30)
    if result.exit_code != REFUSED or "missing.yaml" not in result.stderr:
        complaints.append(f"the first rank alone: exit {REFUSED} with a message was due\n{show(result)}")
    return complaints


def killed_run(trainer, changes, enough):
    """Kills a rank of two once the record is `enough`; complaints, and the record that is left. At every instant it can be read."""
    run = Running(trainer, 2, changes, enough)
    os.kill(run.ranks[-1], signal.SIGKILL)
    code, stderr, complaints = run.end(30)
    record = run.record()
    if code == 0:
        complaints.append(f"exit 0 although a rank was killed\n{stderr}")
    if record["attributes"]["complete"] or record["attributes"]["exit_code"] != -1:
        complaints.append(f"the record of a killed run says {record['attributes']}")
    return complaints, record


def check_killed_rank(trainer):
    """A rank that is killed ends the job in time, and the record is readable up to its last flush."""
    complaints, record = killed_run(trainer, [], lambda record: len(record["steps/step"]) > 0)
    if record:
        steps = record["steps/step"]
        if not numpy.array_equal(steps, numpy.arange(1, len(steps) + 1)) or not numpy.isfinite(record["steps/loss"]).all():
            complaints.append(f"the steps are {steps}, their losses {record['steps/loss']}")
    return complaints


def check_killed_in_first_interval(trainer):
    """A run that dies before its first log interval leaves a record: input, environment and plan, and no steps."""
    complaints, record = killed_run(trainer, ["output.log_interval=1000000"], lambda record: True)
    if record:
        if len(record["steps/step"]) or record["time/seconds"].shape != (0, 2, 13):
            complaints.append(f"the steps are {record['steps/step']}, their times {record['time/seconds'].shape}")
        if not (record["memory/predicted_peak"].sum(axis=(1, 2)) > 0).all() or not (record["wire/predicted"] > 0).any():
            complaints.append(f"the plan is missing: {record['memory/predicted_peak']}, {record['wire/predicted']}")
        if "log_interval: 1000000" not in record["config"]["yaml"] or not record["environment"]["mpi"]:
            complaints.append(f"the input or the environment is missing: {record['config']}, {record['environment']}")
    return complaints


PROGRAMS = {"output": [("47 non-empty output", check_kept_output)], "usage": [("usage", check_usage)],
            "limits": limits.CHECKS,
            "kill": [("a killed rank", check_killed_rank), ("killed in the first interval", check_killed_in_first_interval)],
            "hang": hang.CHECKS, "singletons": hang.SINGLETONS,
            "stops": stops.CHECKS, "saving": saving.CHECKS, "behind": behind.CHECKS, "killed": saving.KILL_CHECKS,
            "midrun": midrun.CHECKS, "disk": disk.CHECKS, "launcher": launcher.CHECKS, "user": user.CHECKS,
            "copies": copies.CHECKS, "streams": streams.CHECKS, "exchange": exchange.CHECKS,
            "storage": [("70 storage paths", storage.check_paths), ("70 71 storage rows", storage.check_rows),
                        ("rows as measured", storage.check_rows_as_measured),
                        ("70 71 storage runs", functools.partial(storage.check_runs, source=INPUT))]}
GROUPS = {group: [(case.name, functools.partial(check_case, case)) for case in cases] for group, cases in CASES.items()} | PROGRAMS


def main():
    arguments = parse_arguments(__doc__)
    checks = [check for group in arguments.group or GROUPS for check in GROUPS[group]]
    return report(arguments, [(name, functools.partial(in_a_fresh_folder, arguments, check, "fault-")) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main())

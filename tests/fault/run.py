"""Runs that must be refused or must stop: each ends in time, with its exit code, one message, and nothing left half made."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, numpy, parse_arguments, read_record, show, stop, write_counting_text  # noqa: E402

from cases import DIVERGED, DONE, GROUPS, INPUT, REFUSED, Case  # noqa: E402


def check_case(trainer, case):
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
    return ["; ".join(complaints) + "\n" + show(result)] if complaints else []


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
    return complaints


def ranks_of(trainer, output):
    """The process ids of the ranks that write to `output`, by /proc."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if words[0] == str(trainer.binary) and f"output.directory={output}" in words:
            found.append(int(entry.name))
    return sorted(found)


def check_killed_rank(trainer):
    """A rank that is killed ends the job in time, and the record is readable up to its last flush."""
    output = trainer.folder / "run-output"
    (trainer.folder / "run.yaml").write_text(json.dumps(INPUT))
    process = trainer.start(["train", "run.yaml", "train.steps=1000000", f"output.directory={output}"], 2)
    begin = time.monotonic()
    while not (output / "run.h5").exists() and process.poll() is None and time.monotonic() < begin + 30:
        time.sleep(0.1)
    ranks = ranks_of(trainer, output)
    if not (output / "run.h5").exists() or len(ranks) != 2:
        return [f"no record within 30 s, or not two ranks: {ranks}\n{stop(process)}"]
    os.kill(ranks[-1], signal.SIGKILL)
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        return [f"the job goes on without its rank\n{stop(process)}"]
    record = read_record(output)
    steps = record["steps/step"]
    complaints = []
    if process.returncode == 0:
        complaints.append("exit 0 although a rank was killed")
    if record["attributes"]["complete"] or not numpy.array_equal(steps, numpy.arange(1, len(steps) + 1)):
        complaints.append(f"complete is {record['attributes']['complete']}, the steps are {steps}")
    if not numpy.isfinite(record["steps/loss"]).all():
        complaints.append(f"losses {record['steps/loss']}")
    return complaints


PROGRAMS = {"output": [("47 non-empty output", check_kept_output)], "usage": [("usage", check_usage)],
            "kill": [("a killed rank", check_killed_rank)]}


def main():
    arguments = parse_arguments(__doc__)
    groups = GROUPS | PROGRAMS
    cases = [case for group in arguments.group or groups for case in groups[group]]
    failed = ran = 0
    for case in cases:
        name, check = (case.name, lambda trainer, case=case: check_case(trainer, case)) if isinstance(case, Case) else case
        if arguments.filter not in name:
            continue
        ran += 1
        if arguments.list:
            print(name)
            continue
        with tempfile.TemporaryDirectory(prefix="fault-") as folder:
            write_counting_text(pathlib.Path(folder) / "counting.txt")
            complaints = check(Trainer(arguments.binary, arguments.mpirun, folder))
        failed += bool(complaints)
        print(f"{'FAILED' if complaints else 'ok':6} {name}", flush=True)
        for complaint in complaints:
            print("       " + complaint.replace("\n", "\n       "), flush=True)
    print(f"{ran - failed} of {ran} cases hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

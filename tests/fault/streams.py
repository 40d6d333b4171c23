"""Runs whose standard streams or files take nothing more: what cannot be said changes nothing, what is a result and gets lost is a failure."""
import resource
import shutil

from trainer import SKIPPED, Trainer, read_record, show

from cases import DONE, INPUT, IO_FAILED, REFUSED
from disk import failing
from midrun import ours
from processes import Running
from storage import NO_REFUSALS


def under(trainer, before, after=""):
    """A trainer that is started by a shell, after the command `before` and with the redirections `after`."""
    script = trainer.folder / "under.sh"
    script.write_text(f'#!/bin/bash\n{before}\nexec {trainer.binary} "$@" {after}\n')
    script.chmod(0o755)
    return Trainer(script, trainer.environment.get("MPIRUN"), trainer.folder)


def expect(result, exit_code, what):
    return [] if result.exit_code == exit_code else [f"{what}: exit {exit_code} was due\n{show(result)}"]


def stderr_that_takes_nothing(trainer):
    """Refusals, warnings, and a rank that fails alone: the exit codes of a run whose stderr is a full disk or closed, in time."""
    complaints = []
    for after in ("2>/dev/full", "2>&-"):
        mute = under(trainer, "", after)
        complaints += expect(mute.run(["plan", "run.yaml", "model.foo=3"]), REFUSED, f"plan {after}")
        for ranks in (1, 2):
            what = f"{ranks} ranks {after}"
            shutil.rmtree(trainer.folder / "run-output", ignore_errors=True)
            complaints += expect(mute.train(INPUT, ranks, ["model.foo=3"]), REFUSED, f"{what}, an unknown key")
            complaints += expect(mute.train(INPUT, ranks), DONE, what)
            again = mute.train(INPUT, ranks, ["train.steps=2", "output.overwrite=true", "data.valid=[counting.txt]"])  # two warnings are lost
            complaints += expect(again, DONE, f"{what}, a record that is overwritten")
            if again.exit_code == DONE and not read_record(again.output)["attributes"]["complete"]:
                complaints.append(f"{what}: the record is not closed")
    return complaints


def readers_that_go_away(trainer):
    """A log that goes into a pipe whose reader has gone: a run comes to its end all the same."""
    complaints = []
    for ranks in (1, 2):
        shutil.rmtree(trainer.folder / "run-output", ignore_errors=True)
        mute = under(trainer, "exec 3> >(:); wait $!", ">&3 2>&3")
        result = mute.train(INPUT, ranks, ["data.valid=[counting.txt]"])  # a warning is lost too
        complaints += expect(result, DONE, f"{ranks} ranks")
        if result.exit_code == DONE and not read_record(result.output)["attributes"]["complete"]:
            complaints.append(f"{ranks} ranks: the record is not closed")
    return complaints


def a_failure_that_cannot_be_told(trainer):
    """A rank that fails alone in the first step, and cannot say why: the job ends with its exit code all the same."""
    (trainer.folder / "place").mkdir()
    trainer.binary = under(trainer, "", "2>/dev/full").binary
    result = failing(trainer, 1, "io_uring_setup=EPERM,pread64>=4096=EIO").train(
        INPUT, 2, ["grid.dp=2", "offload.optimizer=nvme", f"offload.nvme_path={trainer.folder / 'place'}"], seconds=60)
    return NO_REFUSALS if result.exit_code == SKIPPED else expect(result, IO_FAILED, "a rank that fails alone")


def results_that_are_lost(trainer):
    """Printed results that a full disk takes nothing of are exit 5 with the reason; a run whose record is whole has lost nothing."""
    complaints = expect(trainer.train(INPUT, 1), DONE, "a run")
    full = under(trainer, "", ">/dev/full")
    for words in (["plan", "run.yaml"], ["plan", "run.yaml", "--json"], ["plan", "run.yaml", "--resolved"], ["plan", "run.yaml", "--program"],
                  ["inspect", "run-output"], ["--help"], ["--version"], ["plan", "--help"]):
        result = full.run(words)
        if result.exit_code != IO_FAILED or ours(result.stderr) != ["quadrille: standard output: No space left on device"]:
            complaints.append(f"{words}: exit {IO_FAILED} with the reason was due\n{show(result)}")
    complaints += expect(under(trainer, "", ">&-").run(["plan", "run.yaml"]), IO_FAILED, "a closed stdout")
    result = full.train(INPUT, 2, ["output.overwrite=true"])
    complaints += expect(result, DONE, "train")
    if result.exit_code == DONE and not read_record(result.output)["attributes"]["complete"]:
        complaints.append("train: the record is not closed")
    return complaints


def files_that_may_not_grow(trainer):
    """`ulimit -f`, in mid run: the record's write fails like any other, with exit 5, one line, and nothing left half written."""
    run = Running(trainer, 2, [])
    resource.prlimit(run.ranks[0], resource.RLIMIT_FSIZE, (4096, 4096))
    code, stderr, complaints = run.end(60)
    said = ours(stderr)
    if code != IO_FAILED or len(said) != 1 or "run.h5: cannot write: File too large" not in said[0]:
        complaints.append(f"exit {IO_FAILED}, not {code}, and one line were due\n{stderr}")
    left = sorted(path.name for path in run.output.iterdir())
    return complaints + ([] if left == ["run.h5"] else [f"left behind: {left}"])


def inputs_that_cannot_be_read(trainer):
    """A folder on standard input and a file that gives an error: not taken for an empty one."""
    complaints = []
    folder = under(trainer, "", "< /tmp")
    for run, words, reason in ((folder, ["plan", "-"], "Is a directory"), (trainer, ["plan", "/proc/self/mem"], "Input/output error")):
        result = run.run(words)
        if result.exit_code != REFUSED or f"cannot be read to its end: {reason}" not in result.stderr:
            complaints.append(f"{words}: exit {REFUSED} with '{reason}' was due\n{show(result)}")
    return complaints


CHECKS = [("stderr that takes nothing", stderr_that_takes_nothing), ("readers that go away", readers_that_go_away),
          ("a failure that cannot be told", a_failure_that_cannot_be_told), ("results that are lost", results_that_are_lost),
          ("files that may not grow", files_that_may_not_grow), ("inputs that cannot be read", inputs_that_cannot_be_read)]

"""Saves behind training that fail, and ranks that die or stand still in them."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from trainer import read_record, show, stop

from cases import DIVERGED, DONE, INPUT, IO_FAILED
from midrun import ours
from processes import Running, ranks_of
from stops import checkpoints

BEHIND = "checkpoint.asynchronous=true"


def saving_behind(trainer, changes, step=None, seconds=60):
    """A started run that is in a save behind training (of this step, if one is given; else of any after the first), its ranks and output folder; or a
    complaint."""
    output = trainer.folder / "behind"
    shutil.rmtree(output, ignore_errors=True)
    (trainer.folder / "run.yaml").write_text(json.dumps(INPUT))
    process = trainer.start(["train", "run.yaml", f"output.directory={output}", "grid.dp=2", BEHIND, *changes], 2)
    end, partial, saves = time.monotonic() + seconds, f"step-{step:08}.partial-*" if step else "step-*.partial-*", output / "checkpoints"
    while not list(saves.glob(partial)) or not (step or checkpoints(output)[0]):  # without a pause: it is there for some milliseconds
        if process.poll() is not None or time.monotonic() > end:
            return None, f"no save was seen\n{stop(process)}"
    return (process, ranks_of(trainer, output), output), ""


def killed_in_saves_behind(trainer):
    """kill -9 of each rank while a save behind training is under way: what was saved before is whole, and the next start goes on from it."""
    complaints = []
    for victim in (0, 1):
        run, why = saving_behind(trainer, ["train.steps=1000000", "checkpoint.interval=3"])
        if not run:
            return [why]
        process, ranks, output = run
        os.kill(ranks[victim], signal.SIGKILL)
        process.communicate(timeout=60)
        steps = checkpoints(output)[0]
        if process.returncode == DONE or not steps:
            complaints.append(f"rank {victim} was killed: exit {process.returncode}, checkpoints {steps}")
            continue
        again = trainer.run(["train", "run.yaml", f"output.directory={output}", "grid.dp=2", BEHIND, f"train.steps={steps[-1] + 3}",
                             "checkpoint.interval=3"], 2)
        if again.exit_code != DONE or f"after step {steps[-1]} of" not in again.stdout or "passed over" in again.stderr or checkpoints(output)[1]:
            complaints.append(f"rank {victim} was killed, {steps} saved, left {checkpoints(output)}\n{show(again)}")
    return complaints


def stopped_in_saves_behind(trainer):
    """A rank that stands still while a save behind training is under way, in mid run and at the last step: the watchdog ends the job, exit 6."""
    complaints = []
    for steps, step in ((1000000, None), (6, 6)):
        for _ in range(20):  # it may be over before the signal is there
            run, why = saving_behind(trainer, [f"train.steps={steps}", "checkpoint.interval=3", "comm.watchdog=3"], step)
            if not run:
                continue
            process, ranks, _ = run
            for rank in ranks[1:]:
                os.kill(rank, signal.SIGSTOP)
            try:
                _, stderr = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                stderr = f"it does not end\n{stop(process)}"
            if process.returncode != DONE:
                break
        if not run or process.returncode != 6 or "comm.watchdog: " not in stderr or "stopped by a signal" not in stderr:
            complaints.append(why or f"{steps} steps: exit {process.returncode}, 6 was due, with a report\n{stderr}")
    return complaints


def told_at_once(trainer):
    """A save behind training that fails ends the run as soon as its steps are told of, not with the next save."""
    (trainer.folder / "saved").mkdir()
    saves = ["checkpoint.interval=1000", f"checkpoint.directory={trainer.folder / 'saved'}"]
    run = Running(trainer, 2, ["grid.dp=2", BEHIND, "output.log_interval=1", *saves])
    resource.prlimit(run.ranks[0], resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))  # less than a checkpoint, more than a record
    code, stderr, complaints = run.end(120)
    last = read_record(run.output)["steps/step"][-1]
    if code != IO_FAILED or len(ours(stderr)) != 1 or "checkpoint.h5: cannot" not in stderr or not 1000 <= last < 2000:
        complaints.append(f"exit {code} after step {last}; exit {IO_FAILED} between steps 1000 and 2000 and one line were due\n{stderr}")
    return complaints + [f"left behind: {left}" for left in (trainer.folder / "saved").iterdir()]


def told_at_the_end(trainer):
    """A run that ends by itself tells of the save behind training that was under way, and it stands."""
    run = ["grid.dp=2", BEHIND, "checkpoint.interval=1", "train.steps=1000000", "optimizer.lr=1e30"]
    result = trainer.train(INPUT, 2, run)
    saved = re.findall(r"checkpoint: \S*step-(\d+), ", result.stdout)
    if result.exit_code != DIVERGED or not saved or [int(step) for step in saved] != checkpoints(result.output)[0] or checkpoints(result.output)[1]:
        return [f"told of {saved}, and there are {checkpoints(result.output)}\n{show(result)}"]
    return []


CHECKS = [("kill -9 in saves behind training", killed_in_saves_behind), ("SIGSTOP in saves behind training", stopped_in_saves_behind),
          ("a failed save behind training is told at once", told_at_once), ("the last save behind training is told of", told_at_the_end)]

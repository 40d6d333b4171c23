"""Stops on purpose: signals to one rank or all, at any moment, and the end of a job's time. Each leaves a checkpoint of the step where it stopped."""
import datetime
import functools
import itertools
import json
import os
import pathlib
import re
import signal
import time

from trainer import numpy, read_record, show, wait_for

from cases import DONE, INPUT, STOPPED
from midrun import ours
from processes import Running, ranks_of

AFRESH = ["output.overwrite=true", "checkpoint.resume=none"]
SAME_SIGNAL = 5  # seconds in which a repeat is the same signal


def checkpoints(output):
    """The steps whose checkpoints stand in an output folder, oldest first, and whatever else is there."""
    names = sorted(path.name for path in (output / "checkpoints").iterdir()) if (output / "checkpoints").exists() else []
    steps = [int(name[5:]) for name in names if re.fullmatch(r"step-\d{8}", name)]
    return steps, [name for name in names if not re.fullmatch(r"step-\d{8}", name)]


def check_stop(code, stderr, output, *words):
    """Complaints unless a job has stopped as it should: exit 75, one line that names the words and the step, whose checkpoint is there."""
    said, complaints = ours(stderr), []
    if code != STOPPED or len(said) != 1:
        return [f"exit {code}, said {said}; exit {STOPPED} and one line were due\n{stderr}"]
    steps, others = checkpoints(output)
    record = read_record(output)
    last = int(record["steps/step"][-1]) if len(record["steps/step"]) else 0
    complaints += [f"not said: {word}\n{said[0]}" for word in (*words, rf"after step {last} of") if not re.search(word, said[0])]
    if not steps or steps[-1] != last or others:
        complaints.append(f"the last step of the record is {last}; checkpoints: {steps}, {others}")
    if record["attributes"]["exit_code"] != STOPPED or record["attributes"]["complete"]:
        complaints.append(f"the record is closed with {record['attributes']}")
    if record["steps/step"].tolist() != list(range(1, last + 1)):
        complaints.append(f"the record has the steps {record['steps/step']}")
    return complaints


def one_rank_or_all(trainer):
    """78: SIGTERM and SIGUSR1, to one rank or to all, once or twice at once: all ranks stop at the same step."""
    complaints = []
    cases = ((4, "grid.dp=2 grid.tp=2", [2]), (2, "grid.pp=2", [1]), (4, "grid.dp=2 grid.pp=2", [0, 1, 2, 3]), (1, "", [0]))
    for (ranks, grid, victims), sent in itertools.product(cases, (signal.SIGTERM, signal.SIGUSR1)):
        run = Running(trainer, ranks, [*grid.split(), "output.log_interval=3"])
        for process in [run.ranks[victim] for victim in victims] * 2:
            os.kill(process, sent)
        code, stderr, left = run.end(60)
        complaints += left + [f"{grid}, {sent.name}: {c}" for c in check_stop(code, stderr, run.output, rf"{sent.name}, which rank {victims[0]} got")]
    return complaints


def goes_on(trainer):
    """41, 78: a run that was stopped, three times, and then goes on to its end is the run that never was."""
    complaints, steps = [], 0
    for number in range(3):
        enough = functools.partial(lambda record, least: len(record["steps/step"]) > least, least=steps)
        run = Running(trainer, 2, ["grid.dp=2", "output.log_interval=7"], enough, keep=number > 0)
        os.kill(run.ranks[number % 2], signal.SIGUSR1)
        code, stderr, left = run.end(60)
        complaints += left + check_stop(code, stderr, run.output)
        steps = len(read_record(run.output)["steps/step"])
    ends = ["grid.dp=2", f"train.steps={steps + 5}"]
    result = trainer.train(INPUT, 2, ends, seconds=120)
    losses = read_record(result.output)["steps/loss"]
    straight = trainer.train(INPUT, 2, [*ends, *AFRESH], seconds=200)
    if result.exit_code != DONE or straight.exit_code != DONE or not numpy.array_equal(read_record(straight.output)["steps/loss"], losses):
        complaints.append(f"stopped: {losses}\nstraight: {read_record(straight.output)['steps/loss']}\n{show(result)}\n{show(straight)}")
    return complaints


def at_start_up(trainer):
    """78: a signal that comes while a run is set up, even before MPI, stops it before the first step, which is saved too."""
    complaints = []
    for rank, sent in ((0, signal.SIGTERM), (1, signal.SIGUSR1)):
        output = trainer.folder / f"start-{rank}"
        (trainer.folder / "run.yaml").write_text(json.dumps(INPUT))
        process = trainer.start(["train", "run.yaml", "train.steps=1000000", f"output.directory={output}"], 2)

        ranks = []

        def stands_by():  # the rank's process has taken the signal in hand: holds it back
            ranks[:] = ranks_of(trainer, output)
            try:
                status = pathlib.Path(f"/proc/{ranks[rank]}/status").read_text()
            except (OSError, IndexError):
                return False
            return len(ranks) == 2 and any(int(mask, 16) >> (sent - 1) & 1 for mask in re.findall(r"SigBlk:\s+(\w+)", status))

        if not wait_for(stands_by, 30):
            process.kill()
            return ["no such rank within 30 s"]
        os.kill(ranks[rank], sent)
        _, stderr = process.communicate(timeout=60)
        complaints += check_stop(process.returncode, stderr, output, f"{sent.name}, which rank {rank} got", "after step 0 of")
    return complaints


def in_an_evaluation(trainer):
    """78: a signal in a long evaluation stops it between two batches; the run that goes on makes up for it."""
    endless = ["data.format=synthetic", "data.train=[]", "evaluation.interval=1", "evaluation.batches=1000000"]
    run = Running(trainer, 2, ["grid.dp=2", *endless], lambda record: True)
    time.sleep(2)  # past the first step; the record need not tell of it yet
    os.kill(run.ranks[1], signal.SIGUSR1)
    code, stderr, left = run.end(60)
    complaints = left + check_stop(code, stderr, run.output, "after step 1 of")
    result = trainer.train(INPUT, 2, ["grid.dp=2", "train.steps=2", *endless[:-1], "evaluation.batches=2"], seconds=60)
    record = read_record(result.output)
    if result.exit_code != DONE or record["evaluation/step"].tolist() != [1, 2]:
        complaints.append(f"evaluations after steps {record['evaluation/step']}\n{show(result)}")
    return complaints


def in_a_save(trainer):
    """78: a signal while a checkpoint is written stops the run at that step, once it is whole."""
    complaints = []
    for sent in (signal.SIGTERM, signal.SIGUSR1):
        run = Running(trainer, 2, ["grid.dp=2", "checkpoint.interval=1"])
        saving = lambda: bool(checkpoints(run.output)[1])  # noqa: E731  a folder under a temporary name
        if not wait_for(saving, 30):
            return [f"no save was seen\n{run.end(0)[1]}"]
        os.kill(run.ranks[1], sent)
        code, stderr, left = run.end(60)
        complaints += left + check_stop(code, stderr, run.output, sent.name)
    return complaints


def a_second_one_later(trainer):
    """78: a signal that comes more than 5 s after the first ends the job at once, though a rank hangs and nothing can be saved."""
    run = Running(trainer, 2, ["grid.dp=2", "comm.watchdog=0"])
    os.kill(run.ranks[1], signal.SIGSTOP)
    os.kill(run.ranks[0], signal.SIGTERM)
    time.sleep(SAME_SIGNAL / 2)  # the time itself is what is tested
    os.kill(run.ranks[0], signal.SIGTERM)
    goes_on_still = not wait_for(lambda: not pathlib.Path(f"/proc/{run.ranks[0]}").exists(), 0.5)
    time.sleep(SAME_SIGNAL / 2 + 0.5)
    os.kill(run.ranks[0], signal.SIGTERM)
    code, stderr, left = run.end(30)
    complaints = left if goes_on_still else ["a repeat within 5 s has ended the job"]
    if code not in (128 + signal.SIGTERM, 1) or checkpoints(run.output)[0]:  # MPICH's launcher has its own code
        complaints.append(f"exit {code}, checkpoints {checkpoints(run.output)}\n{stderr}")
    return complaints


def time_limit(trainer):
    """78: train.time_limit, and the end of a Slurm job, stop the run in time, with room for the save."""
    complaints = []
    for name, change in (("train.time_limit", "train.time_limit=15"), ("Slurm job", "train.seed=1")):
        end = int(time.time()) + 15
        variables = {"SLURM_JOB_END_TIME": str(end)} if name == "Slurm job" else {}
        result = trainer.train(INPUT, 2, ["grid.dp=2", "train.steps=1000000", change, *AFRESH], 90, variables)
        found = check_stop(result.exit_code, result.stderr, result.output, name)
        begin = datetime.datetime.fromisoformat(read_record(result.output)["attributes"]["start_time"].replace("Z", "+00:00")).timestamp()
        saved = (result.output / "run.h5").stat().st_mtime  # written last
        if saved > (end if variables else begin + 15):  # a run's time begins before its record's
            found.append(f"{name}: it ended {saved - begin:.1f} s after its begin\n{show(result)}")
        complaints += found
    past = trainer.train(INPUT, 2, ["grid.dp=2", *AFRESH], 60, {"SLURM_JOB_END_TIME": "1000000000"})
    return complaints + ([] if past.exit_code == DONE else [f"the end of a job that is over has stopped this one\n{show(past)}"])


def no_time_for_a_step(trainer):
    """78: a job too short for one step is refused with both numbers, whatever it begins with, for it would be queued again for ever."""
    words = ["train.time_limit is 1.5 s, of which ", " s are left before the first step, and ", " s are needed to stop and save: not one step fits"]
    complaints, endless = [], ["grid.dp=2", "train.steps=1000000", "train.time_limit=1.5"]
    afresh = trainer.train(INPUT, 2, endless)
    if afresh.output.exists():
        complaints.append(f"refused, yet there is {list(afresh.output.iterdir())}")
    first = trainer.train(INPUT, 2, ["grid.dp=2", "train.steps=2", "checkpoint.interval=2"])
    if first.exit_code != DONE:
        return [show(first)]
    record = (first.output / "run.h5").read_bytes()
    for result in (afresh, trainer.train(INPUT, 2, endless)):
        said = ours(result.stderr)
        if result.exit_code != 2 or len(said) != 1 or any(word not in said[0] for word in words):
            complaints.append(f"exit 2 and one line that says {words} were due\n{show(result)}")
    if (first.output / "run.h5").read_bytes() != record or checkpoints(first.output) != ([2], []):
        complaints.append(f"what was there is changed: {checkpoints(first.output)}")
    return complaints


CHECKS = [(f"78 {check.__name__}", check)
          for check in (one_rank_or_all, goes_on, at_start_up, in_an_evaluation, in_a_save, a_second_one_later, time_limit, no_time_for_a_step)]

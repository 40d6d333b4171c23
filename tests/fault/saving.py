"""Saves that fail, and ranks that die while every step is saved: what was saved before stays whole, and the next start goes on from it."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

from trainer import Trainer, numpy, read_record, show

from behind import BEHIND
from cases import DONE, INPUT, IO_FAILED, REFUSED, STOPPED
from midrun import ours
from processes import Running, ranks_of
from stops import checkpoints
from streams import under

KILLS = int(os.environ.get("QUADRILLE_KILLS", "4"))
STEPS = 40
SAVES = ["grid.dp=2", f"train.steps={STEPS}", "checkpoint.interval=1"]


def killed_at_random(trainer):
    """kill -9 of a random rank at a random moment of a run that saves every step, time and again: every restart goes on, bit for bit.

    QUADRILLE_KILLS sets how often, QUADRILLE_SEED the moments.
    """
    seed = int(os.environ.get("QUADRILLE_SEED", time.time_ns() % 10**9))
    print(f"seed {seed}, {KILLS} kills")
    chance = random.Random(seed)
    straight = trainer.train(INPUT, 2, ["grid.dp=2", f"train.steps={STEPS}"], seconds=600)
    losses = read_record(straight.output)["steps/loss"]
    output, complaints, kills, newest, begun = trainer.folder / "killed", [], 0, 0, 0
    while not complaints:
        behind = f"checkpoint.asynchronous={chance.choice(['true', 'false'])}"
        process = trainer.start(["train", "run.yaml", f"output.directory={output}", behind, *SAVES], 2)
        if kills < KILLS:
            time.sleep(chance.uniform(0.2, 3))  # the moment is what is tested, start-up among them
            ranks = ranks_of(trainer, output)
            if len(ranks) == 2:
                os.kill(chance.choice(ranks), signal.SIGKILL)
                kills += 1
        stdout, stderr = process.communicate(timeout=300)
        after = re.search(r"resume: goes on after step (\d+)", stdout)
        lost = "begins afresh" in stdout or (after and int(after[1]) < newest)  # killed before it could say where it begins, it says neither
        if newest and lost:
            complaints.append(f"step {newest} was saved, yet it went on after {after and after[1]}\n{stdout[-1000:]}\n{stderr[-2000:]}")
        begun = int(after[1]) if after else 0
        steps = checkpoints(output)[0]
        newest = steps[-1] if steps else 0
        if newest < begun or "passed over" in stderr:
            complaints.append(f"it began after step {begun}, and now there are {steps}\n{stderr[-2000:]}")
        if process.returncode == DONE:
            record = read_record(output)
            if not numpy.array_equal(record["steps/loss"], losses) or checkpoints(output)[1]:
                complaints.append(f"after {kills} kills: {record['steps/loss']}\nstraight: {losses}\n{checkpoints(output)}")
            if kills >= KILLS:
                return complaints
            shutil.rmtree(output)  # it came to its end first: anew
            newest = 0
    return complaints


def opened_by_some(trainer):
    """A checkpoint's file that one rank cannot open though others have: the job ends at once, in a save and at the start, for MPI's end would not."""
    library = os.environ.get("QUADRILLE_FAILING_MPI", "")
    if not library:
        return "skipped: not with sanitizers, whose library must come first"
    saves, complaints = ["grid.dp=2", "checkpoint.interval=2", "comm.watchdog=0"], []
    for how in ("write", "read"):
        failing = under(trainer, f"export LD_PRELOAD={library} FAILING_OPEN={how} FAILING_RANK=1")
        for behind in (BEHIND, "checkpoint.asynchronous=false"):
            result = failing.train(INPUT, 2, [*saves, behind, "train.steps=4"], 30)
            said = ours(result.stderr)
            if result.exit_code != IO_FAILED or len(said) != 1 or "MPI-IO cannot open" not in said[0]:
                complaints.append(f"{how}, {behind}: exit {IO_FAILED} and one line were due\n{show(result)}")
        first = trainer.train(INPUT, 2, [*saves, "train.steps=2"])
        if first.exit_code != DONE or checkpoints(first.output) != ([2], []):
            return [*complaints, f"{checkpoints(first.output)}\n{show(first)}"]
    return complaints


def ends_with_io_failed(trainer, prepare, *words, changes=()):
    """Complaints unless a run that has saved, and then cannot, ends with exit 5 and one line, the former checkpoint whole and nothing left behind.

    `prepare(folder)` breaks checkpoint.directory and returns what mends it.
    """
    saved = trainer.folder / "saved"
    first = trainer.train(INPUT, 2, ["grid.dp=2", "train.steps=2", "checkpoint.interval=2", f"checkpoint.directory={saved}", "output.overwrite=true",
                                     "checkpoint.resume=none"])
    if first.exit_code != DONE:
        return [show(first)]
    mend = prepare(saved)
    try:
        result = trainer.train(INPUT, 2, ["grid.dp=2", "train.steps=6", "checkpoint.interval=2", f"checkpoint.directory={saved}", *changes])
    finally:
        mend()
    complaints = []
    said = ours(result.stderr)
    if result.exit_code != IO_FAILED or len(said) != 1 or any(word not in said[0] for word in words) or "MPI_ABORT" in result.stderr:
        complaints.append(f"exit {IO_FAILED} and one line that says {words} were due\n{show(result)}")
    names = sorted(path.name for path in saved.iterdir())
    if names != ["step-00000002"]:
        complaints.append(f"the folder holds {names}")
    again = trainer.train(INPUT, 2, ["grid.dp=2", "train.steps=6", "checkpoint.interval=2", f"checkpoint.directory={saved}"])
    if again.exit_code != DONE or "after step 2 of 6" not in again.stdout:
        complaints.append(f"it does not go on afterwards\n{show(again)}")
    return complaints


def full_disk(trainer):
    """A disk that is full in mid save, here a file system of its own size."""
    place = trainer.folder / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m", "tmpfs", place], capture_output=True, check=False).returncode:
        return "skipped: no file system may be mounted here"
    try:
        complaints = on_small_disk(trainer, place)
        return complaints + on_small_disk(trainer, place, BEHIND)
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def on_small_disk(trainer, place, *changes):
    for old in (trainer.folder / "saved", trainer.folder / "run-output"):
        old.unlink() if old.is_symlink() else shutil.rmtree(old, ignore_errors=True)
    for old in place.iterdir():
        shutil.rmtree(old)
    (trainer.folder / "saved").symlink_to(place)

    def fill(folder):
        filler = place / "filler"
        room = shutil.disk_usage(place).free
        filler.write_bytes(bytes(max(0, room - 300_000)))
        return filler.unlink

    return ends_with_io_failed(trainer, fill, "saved", "No space left on device", changes=changes)


def read_only(trainer):
    """A directory that has become read-only: for an ordinary user by its mode, for root by a mount."""
    def protect(folder):
        if os.geteuid() != 0:
            folder.chmod(0o555)
            return lambda: folder.chmod(0o755)
        subprocess.run(["mount", "--bind", folder, folder], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True, capture_output=True)
        return lambda: subprocess.run(["umount", "-l", folder], check=True)

    try:
        return ends_with_io_failed(trainer, protect, "saved")
    except subprocess.CalledProcessError:
        return "skipped: nothing may be mounted here"


def vanished(trainer):
    """A directory that another program removes, with all in it, and puts a file in its place: the next save says so."""
    (trainer.folder / "run.yaml").write_text(json.dumps(INPUT))
    output, saved = trainer.folder / "run-output", trainer.folder / "saved"
    process = trainer.start(["train", "run.yaml", "train.steps=1000000", "checkpoint.interval=1", f"checkpoint.directory={saved}",
                             f"output.directory={output}", "grid.dp=2"], 2)
    end = time.monotonic() + 60
    while not list(saved.glob("step-*")) and time.monotonic() < end:
        time.sleep(0.02)
    while process.poll() is None and not saved.is_file() and time.monotonic() < end:
        try:
            saved.rename(trainer.folder / f"gone-{time.monotonic_ns()}")
            pathlib.Path(saved).touch(exist_ok=False)
        except OSError:
            pass  # made anew in between
    _, stderr = process.communicate(timeout=60)
    said = ours(stderr)
    if process.returncode != IO_FAILED or len(said) != 1 or "saved" not in said[0]:
        return [f"exit {process.returncode}, said {said}; exit {IO_FAILED} and one line were due\n{stderr}"]
    return []


def seen_by_one_rank(trainer):
    """47: a checkpoint on a disk that only rank 0 sees: refused on all ranks, by path and by auto, with nothing written."""
    saved = trainer.folder / "saved"
    arguments = ["grid.dp=2", f"checkpoint.directory={saved}", "train.steps=2", "checkpoint.interval=2"]
    first = trainer.train(INPUT, 2, arguments)
    if first.exit_code != DONE:
        return [show(first)]
    script = trainer.folder / "hidden.sh"
    script.write_text(f'#!/bin/sh\n[ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}" = 1 ] || exec {trainer.binary} "$@"\n'
                      f'exec unshare -m sh -c \'mount -t tmpfs tmpfs {saved} && exec "$@"\' sh {trainer.binary} "$@"\n')
    script.chmod(0o755)
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", saved], capture_output=True, check=False).returncode:
        return "skipped: no file system may be mounted here"
    hiding, complaints = Trainer(script, trainer.environment.get("MPIRUN"), trainer.folder), []
    for change in (f"checkpoint.resume={saved / 'step-00000002'}", f"checkpoint.resume={saved}", "checkpoint.resume=auto"):
        result = hiding.train(INPUT, 2, [*arguments[:2], "train.steps=4", change])
        said = ours(result.stderr)
        if result.exit_code != 2 or len(said) != 1 or "saved" not in said[0] or not re.search("rank|all", said[0]):
            complaints.append(f"{change}: exit 2 and one line were due\n{show(result)}")
    return complaints


def one_directory_of_two_runs(trainer):
    """47: a second run, with an output directory of its own, into the checkpoint.directory of one that lives: refused, and nothing is touched."""
    saved = trainer.folder / "saved"
    run = Running(trainer, 1, ["checkpoint.interval=5", f"checkpoint.directory={saved}"])
    source, other = trainer.folder / "run.yaml", trainer.folder / "other"
    other.mkdir()
    former = {name: f"{name} of a run before" for name in ("run.h5", "run-2.h5", "trace.h5")}
    for name, text in former.items():
        (other / name).write_text(text)
    second = trainer.run(["train", source, f"output.directory={other}", f"checkpoint.directory={saved}", "checkpoint.resume=none",
                          "output.overwrite=true", "train.steps=2"])
    os.kill(run.ranks[0], signal.SIGTERM)
    code, stderr, complaints = run.end(60)
    said = ours(second.stderr)
    if second.exit_code != REFUSED or len(said) != 1 or "checkpoint.directory" not in said[0] or "in use" not in said[0]:
        complaints.append(f"exit {REFUSED} and one line were due\n{show(second)}")
    if {path.name: path.read_text() for path in other.iterdir()} != former:
        complaints.append(f"what the second one's output.directory held is changed: {sorted(other.iterdir())}")
    last = int(read_record(run.output)["steps/step"][-1])
    if code != STOPPED or not (saved / f"step-{last:08}").exists() or list(saved.glob("former-*")):
        complaints.append(f"the first run: exit {code}, {sorted(saved.iterdir())}\n{stderr}")
    return complaints


KILL_CHECKS = [("kill -9 at random", killed_at_random)]
CHECKS = [("a file that some ranks can open", opened_by_some), ("47 one checkpoint.directory of two runs", one_directory_of_two_runs),
          ("full disk", full_disk), ("read-only directory", read_only), ("vanished directory", vanished),
          ("47 a checkpoint that one rank sees", seen_by_one_rank)]

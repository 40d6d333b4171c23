"""Disks that fail in mid run: what a step under way does when a rank's reads fail, and a record that was never written."""
import sys

from trainer import SKIPPED, Trainer, read_record, show

from cases import IO_FAILED, INPUT
from midrun import ours
from storage import NO_REFUSALS, REFUSED_CALLS


def failing(trainer, rank, rules):
    """A trainer on whose rank `rank` these system calls fail."""
    script = trainer.folder / "failing.sh"
    script.write_text(f'#!/bin/sh\n[ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}" = {rank} ] || exec {trainer.binary} "$@"\n'
                      f'exec {sys.executable} {REFUSED_CALLS} "{rules}" {trainer.binary} "$@"\n')
    script.chmod(0o755)
    return Trainer(script, trainer.environment.get("MPIRUN"), trainer.folder)


def reads_that_fail(trainer):
    """Rank 1 cannot read its file in the first step, with messages and copies in flight: exit 5 in time, one line with file and bytes."""
    complaints = []
    (trainer.folder / "place").mkdir()
    away = ["offload.optimizer=nvme", "offload.parameters=nvme", "offload.activations=nvme", f"offload.nvme_path={trainer.folder / 'place'}"]
    for grid in (["grid.dp=2", "sharding.zero_stage=3"], ["grid.pp=2"], ["grid.tp=2", "tensor.sequence_parallel=true"]):
        result = failing(trainer, 1, "io_uring_setup=EPERM,pread64>=4096=EIO").train(INPUT, 2, [*grid, *away, "output.overwrite=true"], seconds=60)
        if result.exit_code == SKIPPED:
            return complaints or NO_REFUSALS
        said = [line for line in ours(result.stderr) if "io_uring is refused" not in line]
        words = ["rank 1: ", "offload.nvme_path", str(trainer.folder / "place"), "reading", " bytes at byte ", "Input/output error"]
        if result.exit_code != IO_FAILED or len(said) != 1 or any(word not in said[0] for word in words):
            complaints.append(f"{grid}: exit {IO_FAILED} and one line that says {words} were due\n{show(result)}")
        elif read_record(result.output)["attributes"]["exit_code"] != -1:
            complaints.append(f"{grid}: this did not happen in mid run\n{show(result)}")
    return complaints


def record_never_written(trainer):
    """A record that cannot be written even once: all ranks end in order, with exit 5 and one line."""
    (trainer.folder / "run-output/checkpoints").mkdir(parents=True)  # what is made is synced before the record
    result = failing(trainer, 0, "fsync=EIO").train(INPUT, 2)
    if result.exit_code == SKIPPED:
        return NO_REFUSALS
    said = ours(result.stderr)
    if result.exit_code != IO_FAILED or len(said) != 1 or "run.h5: cannot sync: Input/output error" not in said[0]:
        return [f"exit {IO_FAILED} and one line were due\n{show(result)}"]
    if "MPI_ABORT" in result.stderr:
        return [f"the job was aborted, though all ranks knew\n{show(result)}"]
    left = [path.name for path in result.output.iterdir()]
    return [f"left behind: {left}"] if left != ["checkpoints"] else []


CHECKS = [("70 reads that fail in mid run", reads_that_fail), ("record never written", record_never_written)]

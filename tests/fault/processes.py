"""The processes of a run's ranks, by /proc."""
import json
import os
import pathlib
import shutil
import signal
import subprocess

from trainer import read_record, stop, wait_for

from cases import INPUT


def ranks_of(trainer, output):
    """The process ids of the ranks that write to `output`, in order of rank."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            if words[0] != str(trainer.binary) or f"output.directory={output}" not in words:
                continue
            variables = dict(item.split("=", 1) for item in (entry / "environ").read_bytes().decode().split("\0") if "=" in item)
        except (OSError, UnicodeDecodeError):
            continue
        rank = int(variables.get("OMPI_COMM_WORLD_RANK") or variables.get("PMI_RANK") or 0)
        found.append((rank, int(entry.name)))
    return [process for _, process in sorted(found)]


class Running:
    """A run of INPUT without end, on its own output folder; its record had to be `enough` within 30 s, else RuntimeError. `keep`: goes on there."""

    def __init__(self, trainer, ranks, changes, enough=lambda record: len(record["steps/step"]) > 0, environment=(), keep=False):
        self.trainer, self.output = trainer, trainer.folder / "run-output"
        (trainer.folder / "run.yaml").write_text(json.dumps(INPUT))
        if not keep:
            shutil.rmtree(self.output, ignore_errors=True)  # an earlier run's record would tell nothing of this one
        arguments = ["train", "run.yaml", "train.steps=1000000", f"output.directory={self.output}", *changes]
        self.process = trainer.start(arguments, ranks, environment)
        begun = wait_for(lambda: self.process.poll() is not None or (self.record() and enough(self.record())), 30)
        self.ranks = ranks_of(trainer, self.output)
        if not begun or self.process.poll() is not None or len(self.ranks) != ranks:
            raise RuntimeError(f"no such record within 30 s, or not {ranks} ranks: {self.ranks}\n{stop(self.process)}")

    def record(self):
        return read_record(self.output) if (self.output / "run.h5").exists() else None

    def end(self, seconds):
        """The exit code (None: the job went on and was stopped), stderr, and complaints about processes that are left."""
        try:
            _, stderr = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            for process in ranks_of(self.trainer, self.output):
                os.kill(process, signal.SIGKILL)
            return None, stop(self.process)[1], ["the job goes on"]
        gone = wait_for(lambda: not ranks_of(self.trainer, self.output), 5)
        return self.process.returncode, stderr, [] if gone else [f"left running: {ranks_of(self.trainer, self.output)}"]

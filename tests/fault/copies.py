"""Data files that are not the same on every rank, and files that go away while they are read."""
import json
import os
import subprocess
import time

from trainer import Trainer, read_record, show, stop, write_counting_text

from cases import IO_FAILED, INPUT, REFUSED
from midrun import ours

TEXT_BYTES = 400000  # more than is read into memory, and than the ends that are compared
SOURCE = INPUT | {"data": {"format": "text", "train": ["/proc/self/cwd/copy.txt"]}}  # of the folder that each rank runs in


def elsewhere(trainer, text):
    """A trainer whose rank 1 runs in a folder of its own, where copy.txt holds `text`."""
    other = trainer.folder / "elsewhere"
    other.mkdir(exist_ok=True)
    (other / "copy.txt").write_bytes(text)
    script = trainer.folder / "elsewhere.sh"
    script.write_text(f'#!/bin/sh\n[ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}" = 1 ] && cd {other}\nexec {trainer.binary} "$@"\n')
    script.chmod(0o755)
    return Trainer(script, trainer.environment.get("MPIRUN"), trainer.folder)


def large_text(trainer):
    path = trainer.folder / "copy.txt"
    write_counting_text(path, lines=10000)
    text = path.read_bytes()[:TEXT_BYTES]
    path.write_bytes(text)
    return text


def copies_that_differ(trainer):
    """61 62 84: a node's copy that was cut, or is another text of the same length: exit 2 with both ranks and figures, on any grid."""
    text, complaints = large_text(trainer), []
    for copy, words in ((text[:-1000], (str(len(text)), str(len(text) - 1000))), (text[:-1] + b"#", (str(len(text)), "not the same ones"))):
        for grid in ("grid.pp=2", "grid.dp=2"):
            result = elsewhere(trainer, copy).train(SOURCE, 2, [grid])
            said = ours(result.stderr)
            if result.exit_code != REFUSED or len(said) != 1 or any(w not in said[0] for w in ("copy.txt", "rank 1", "rank 0", *words)):
                complaints.append(f"{grid}: exit {REFUSED} and one line with {words} were due\n{show(result)}")
            if result.output.exists():
                complaints.append(f"{grid}: refused, yet {result.output} exists")
    return complaints


def copies_that_differ_in_the_middle(trainer):
    """Where ends and sizes are alike, ranks that train on the same sequences notice at the first that differs: exit 5 with step and ranks."""
    text, complaints = large_text(trainer), []
    middle = bytearray(text)
    at = 40000  # between the ends
    middle[at] = 35 if middle[at] != 35 else 36
    length = 256
    step = at // (INPUT["train"]["global_batch_size"] * length) + 1
    for grid in ("grid.pp=2", "grid.sp=2", "grid.tp=2"):
        changes = [grid, "data.shuffle=false", f"train.steps={step + 5}", "output.overwrite=true", f"model.seq_length={length}",
                   "model.num_layers=2", "model.hidden_size=8"]
        result = elsewhere(trainer, bytes(middle)).train(SOURCE, 2, changes, seconds=120)
        said = ours(result.stderr)
        if result.exit_code != IO_FAILED or len(said) != 1 or f"step {step}: ranks 0 and 1 " not in said[0]:
            complaints.append(f"{grid}: exit {IO_FAILED} and one line with step {step} were due\n{show(result)}")
        elif read_record(result.output)["attributes"]["exit_code"] != IO_FAILED:
            complaints.append(f"{grid}: the record is not closed")
    return complaints


def file_that_goes_away(trainer):
    """A file that is renamed, or removed, and then cut: exit 5 with its name, on one rank and on two."""
    complaints = []
    for ranks, renamed in ((1, True), (2, False)):
        large_text(trainer)
        path, output = trainer.folder / "copy.txt", trainer.folder / f"output-{ranks}-{renamed}"
        (trainer.folder / "run.yaml").write_text(json.dumps(SOURCE))
        process = trainer.start(["train", "run.yaml", "train.steps=1000000", f"output.directory={output}"], ranks)
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end and not ((output / "run.h5").exists() and len(read_record(output)["steps/step"])):
            time.sleep(0.02)
        descriptor = os.open(path, os.O_RDWR)
        path.rename(trainer.folder / "copy.old") if renamed else path.unlink()
        os.ftruncate(descriptor, 5000)
        os.close(descriptor)
        try:
            _, stderr = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            stderr = stop(process)[1]
        said = ours(stderr)
        if process.returncode != IO_FAILED or len(said) != 1 or "copy.txt" not in said[0] or "5000" not in said[0]:
            complaints.append(f"{ranks} ranks, renamed {renamed}: exit {IO_FAILED}, not {process.returncode}, and one line were due\n{stderr}")
    return complaints


CHECKS = [("61 62 84 copies that differ", copies_that_differ), ("61 62 84 copies that differ in the middle", copies_that_differ_in_the_middle),
          ("a file that goes away", file_that_goes_away)]

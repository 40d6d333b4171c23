"""Runs that begin well and meet a fault later: data that turns out bad on one rank, a record that cannot be written any more."""
import json
import pathlib
import subprocess
import time

from trainer import numpy, read_record, show, stop

from cases import IO_FAILED, INPUT

UNSCANNED = (1 << 24) + 1000  # tokens: more than are looked at before the first step


def ours(stderr):
    """What the trainer said of its failure, without the launcher's own lines."""
    return [line for line in stderr.splitlines() if line.startswith("quadrille:") and not line.startswith("quadrille: warning:")]


def bad_token(trainer, grid, token, steps_before):
    """Complaints about a run on 2 ranks whose one bad token lies at `token`, first read after so many steps."""
    path = trainer.folder / "tokens.u16"
    with open(path, "wb") as file:  # zeros but for one id; the file has holes and takes no room
        file.truncate(2 * UNSCANNED)
        file.seek(2 * token)
        file.write((300).to_bytes(2, "little"))
    source = INPUT | {"train": INPUT["train"] | {"steps": steps_before + 5}, "data": {"format": "tokens", "train": [str(path)], "shuffle": False}}
    result = trainer.train(source, 2, [grid, "output.overwrite=true"])
    said = ours(result.stderr)
    if result.exit_code != IO_FAILED or len(said) != 1 or any(word not in said[0] for word in (str(path), "300", f"byte {2 * token}", "256")):
        return [f"{grid}: exit {IO_FAILED} and one line with file, byte and id were due\n{show(result)}"]
    record = read_record(result.output)
    closed, steps = record["attributes"], record["steps/step"].tolist()
    if closed["exit_code"] != IO_FAILED or closed["complete"] or steps != list(range(1, steps_before + 1)):
        return [f"{grid}: a closed record of {steps_before} steps was due, but it has the steps {steps} and says {closed}"]
    return [] if numpy.isfinite(record["steps/loss"]).all() else [f"{grid}: the losses are {record['steps/loss']}"]


def data_bad_on_one_rank(trainer):
    """A token id out of range that only one dp rank reads, at step 4: exit 5, one line, and the record is closed with 3 steps."""
    global_batch, length = INPUT["train"]["global_batch_size"], INPUT["model"]["seq_length"]
    first = 3 * global_batch * length  # of step 4, whose sequences go to the dp ranks in turn
    return (bad_token(trainer, "grid.dp=2", first + 1 * length + 6, 3) + bad_token(trainer, "grid.dp=2", first + 2 * length + 6, 3)
            + bad_token(trainer, "grid.pp=2", first + 6, 3))


def record_that_cannot_be_written(trainer):
    """A record whose place is taken in mid run: exit 5, one line with the path and the reason, and no temporary file is left."""
    output = trainer.folder / "run-output"
    record = output / "run.h5"
    (trainer.folder / "run.yaml").write_text(json.dumps(INPUT))
    process = trainer.start(["train", "run.yaml", "train.steps=1000000", f"output.directory={output}"], 2)
    begin = time.monotonic()
    while process.poll() is None and not (record.exists() and len(read_record(output)["steps/step"])) and time.monotonic() < begin + 60:
        time.sleep(0.02)
    while process.poll() is None and not record.is_dir():  # a file cannot replace a folder, whoever writes it
        record.unlink(missing_ok=True)
        try:
            record.mkdir()
        except FileExistsError:
            pass  # written anew in between
    try:
        _, stderr = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        return [f"the job goes on although its record cannot be written\n{stop(process)}"]
    said = ours(stderr)
    complaints = [] if process.returncode == IO_FAILED else [f"exit {process.returncode}, {IO_FAILED} was due\n{stderr}"]
    if len(said) != 1 or str(record) not in said[0] or "Is a directory" not in said[0]:
        complaints.append(f"one line that names the record and the reason was due\n{stderr}")
    left = sorted(path.name for path in pathlib.Path(output).iterdir() if ".partial-" in path.name)
    return complaints + ([f"left behind: {left}"] if left else [])


CHECKS = [("data bad on one rank in mid run", data_bad_on_one_rank), ("record that cannot be written in mid run", record_that_cannot_be_written)]

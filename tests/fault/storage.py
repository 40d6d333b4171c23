"""The nvme tier as `quadrille bench storage` meets it: bad paths, bad numbers, and systems that refuse io_uring."""
import json
import pathlib
import sys

from trainer import SKIPPED, numpy, read_record, show

REFUSED_CALLS = pathlib.Path(__file__).parents[1] / "refused_calls.py"
SMALL = ["--size", "2MiB", "offload.queue_depth=4", "offload.block_size=64KiB"]
DONE, REFUSED, IO_FAILED = 0, 2, 5
NO_REFUSALS = "skipped: system calls cannot be refused here"


def check_paths(trainer):
    """70: a path that is missing or a file, and numbers out of range: one message with the key and what is wrong."""
    (trainer.folder / "file").write_text("a user's")
    complaints = []
    for override, exit_code, words in (("offload.nvme_path=missing", IO_FAILED, ["missing", "2097152 bytes", "No such file or directory"]),
                                       ("offload.nvme_path=file", IO_FAILED, ["file", "2097152 bytes", "Not a directory"]),
                                       ("offload.block_size=511", REFUSED, ["offload.block_size", "511", "512"]),
                                       ("offload.queue_depth=0", REFUSED, ["offload.queue_depth", "0"]),
                                       ("offload.quene_depth=1", REFUSED, ["offload.quene_depth"])):
        result = trainer.run(["bench", "storage", *SMALL, override], seconds=30)
        if result.exit_code != exit_code or any(word not in result.stderr for word in words) or len(result.stderr.splitlines()) > 1:
            complaints.append(f"{override}: exit {exit_code} and one line that says {words} were due\n{show(result)}")
    if (trainer.folder / "file").read_text() != "a user's":
        complaints.append("the user's file was touched")
    return complaints


def check_rows(trainer):
    """70, 71: every variant in a directory of the user's, which is left as it was; with io_uring refused only threads, and why, once."""
    complaints = []
    place = trainer.folder / "place"
    place.mkdir()
    for error, text in ((None, ""), ("EPERM", "Operation not permitted"), ("ENOMEM", "Cannot allocate memory")):
        trainer.prefix = [sys.executable, REFUSED_CALLS, f"io_uring_setup={error}"] if error else []
        path = trainer.folder / "rows.json"
        result = trainer.run(["bench", "storage", "--json", path, *SMALL, f"offload.nvme_path={place}"], seconds=60)
        if result.exit_code == SKIPPED:
            return complaints or NO_REFUSALS
        rows = {(row["name"], row["algorithm"]): row for row in json.loads(path.read_text())} if result.exit_code == DONE else {}
        for name in ("nvme_write", "nvme_read"):
            row = rows.get((name, "threads-buffered"), {})
            due = {"bytes": 2 << 20, "ranks": 1, "threads": 1, "unit": "GB/s"}
            if any(row.get(key) != value for key, value in due.items()) or not row.get("rate", 0) > 0:
                complaints.append(f"{error}: the row {name} of threads-buffered is {row}\n{show(result)}")
        refused = [line for line in result.stderr.splitlines() if "io_uring is refused" in line]
        if error and (len(refused) != 1 or text not in refused[0] or any("uring" in algorithm for _, algorithm in rows)):
            complaints.append(f"{error}: one line that says '{text}', and rows of threads alone, were due\n{show(result)}")
        if list(place.iterdir()):
            complaints.append(f"{error}: left behind: {list(place.iterdir())}")
    return complaints


def check_rows_as_measured(trainer):
    """Each row of a bench is printed and in the JSON file as soon as it is measured, with its threads: who ends it after the first has that."""
    path = trainer.folder / "rows.json"
    process = trainer.start(["bench", "memory", "--json", path], 1, [("OMP_NUM_THREADS", "2")])
    first = process.stdout.readline()
    process.kill()
    rest = process.stdout.read()
    process.wait()
    rows = json.loads(path.read_text())
    whole = len(rows) == 1 and rows[0]["name"] == "copy" and rows[0]["threads"] == 2 and rows[0]["rate"] > 0
    if not whole or "copy" not in first or " 1 rank x 2 threads " not in first or rest:
        return [f"the row of copy alone was due\n{first}{rest}{rows}\n{process.stderr.read()}"]
    return []


def check_runs(trainer, source):
    """70, 71: whole runs from disk. A bad directory is refused and leaves the earlier record; without io_uring the losses are the same."""
    complaints = []
    away = ["offload.optimizer=nvme", "offload.parameters=nvme", "offload.activations=nvme", "output.overwrite=true"]
    (trainer.folder / "file").write_text("a user's")
    (trainer.folder / "place").mkdir()
    here = f"offload.nvme_path={trainer.folder / 'place'}"
    first = trainer.train(source, 2, [*away, here])
    if first.exit_code != DONE:
        return [show(first)]
    losses = read_record(first.output)["steps/loss"]
    for place, words in (("missing", "no such directory"), ("file", "is not a directory")):
        result = trainer.train(source, 2, [*away, f"offload.nvme_path={trainer.folder / place}"])
        if result.exit_code != REFUSED or place not in result.stderr or words not in result.stderr:
            complaints.append(f"{place}: exit {REFUSED} and '{words}' were due\n{show(result)}")
        if not numpy.array_equal(read_record(result.output)["steps/loss"], losses):
            complaints.append(f"{place}: the earlier run's record is gone")
    trainer.prefix = [sys.executable, REFUSED_CALLS, "io_uring_setup=EPERM"]
    result = trainer.train(source, 2, [*away, here])
    if result.exit_code == SKIPPED:
        return complaints or NO_REFUSALS
    said = (result.stdout + result.stderr).count("io_uring is refused")
    if result.exit_code != DONE or said != 1 or not numpy.array_equal(read_record(result.output)["steps/loss"], losses):
        complaints.append(f"without io_uring: the same losses and one line that says why were due\n{show(result)}")
    if list((trainer.folder / "place").iterdir()):
        complaints.append(f"left behind: {list((trainer.folder / 'place').iterdir())}")
    return complaints

"""sweep.py here: expansion with the trainer, what is dropped, a sweep's directory, going on after a kill, two at once, failures."""
import json
import os
import signal

from trainer import read_record, wait_for

from scripts import INPUT, LONG, STEPS, end, expect, is_training, processes_of, ranks_of, start, state, submit, sweep, write

SWEEP = {"base": "run.yaml", "ranks": [1, 2], "fixed": {"train.steps": 3}, "vary": {"sharding.zero_stage": [0, 1]}}


def read(directory):
    return json.loads((directory / "sweep.json").read_text())


def folders(trainer, name="s-sweep"):
    """The directories of a sweep's points that were not dropped, in their order."""
    directory = trainer.folder / "runs" / name
    return [directory / point["directory"] for point in read(directory)["points"] if point["directory"]]


def long_and_short(more=()):
    """A sweep of two points, the first of which takes some time."""
    fixed = LONG | dict(more)
    return {"base": "run.yaml", "ranks": 2, "vary": {"train.steps": [fixed.pop("train.steps"), 2]}, "fixed": fixed}


def whole(trainer):
    """Points run one after another, what plan refuses is dropped with its reason, the layout is as documented, and a second call does nothing."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "s.yaml", SWEEP | {"about": "four and two", "vary": {"grid.tp": [1, 2], "way": {"a": {}, "b": {"train.seed": 7}}}})
    complaints = expect("whole", sweep(trainer, "s.yaml"), 0, "dropped: ranks=1 tp=2 way=a", "tp·pp·sp is 2 x 1 x 1 = 2 but --ranks is 1",
                        "6 done, 2 dropped")
    found, directory = read(trainer.folder / "runs/s-sweep"), trainer.folder / "runs/s-sweep"
    axes = [{"name": "ranks", "values": [1, 2]}, {"name": "grid.tp", "values": [1, 2]}, {"name": "way", "values": ["a", "b"]}]
    if (found["schema"], found["name"], found["about"], found["kind"], found["axes"]) != ("quadrille-sweep-1", "s", "four and two", "product", axes):
        complaints.append(f"sweep.json: {found}")
    if [point["index"] for point in found["points"]] != list(range(8)) or sum(point["dropped"] is None for point in found["points"]) != 6:
        complaints.append(f"points: {found['points']}")
    for point in found["points"]:
        if point["directory"]:
            record = read_record(directory / point["directory"] / "output")
            if len(record["grid/coordinates"]) != point["ranks"] or f"tp: {point['at']['grid.tp']}" not in record["config"]["yaml"]:
                complaints.append(f"{point['name']} has run as {record['config']['yaml'][:900]}")
            if state(directory / point["directory"])["attempts"] != 1:
                complaints.append(f"{point['name']}: {state(directory / point['directory'])}")
    times = [(folder / "output/run.h5").stat().st_mtime_ns for folder in folders(trainer)]
    complaints += expect("again", sweep(trainer, "s.yaml"), 0, "6 done, 2 dropped") + expect("by name", sweep(trainer, directory), 0, "6 done")
    if times != [(folder / "output/run.h5").stat().st_mtime_ns for folder in folders(trainer)]:
        complaints.append("points have run twice")
    complaints += expect("status", sweep(trainer, "s.yaml", "--status"), 0, "ranks=2 tp=2 way=b", "3/3", "dropped", "6 done, 2 dropped")
    return complaints + added_and_changed(trainer, directory)


def added_and_changed(trainer, directory):
    """A value more is points more; another base is another sweep."""
    axes = {"grid.tp": [1, 2], "way": {"a": {}, "b": {"train.seed": 7}, "c": {"train.seed": 8}}}
    write(trainer.folder / "s.yaml", SWEEP | {"vary": axes})
    complaints = expect("a value more", sweep(trainer, "s.yaml"), 0, "9 done, 3 dropped")
    if [point["index"] for point in read(directory)["points"]] != list(range(12)) or read(directory)["points"][8]["at"]["way"] != "c":
        complaints.append(f"points: {read(directory)['points']}")
    named = {json.loads((folder / "job.json").read_text())["machine"] for folder in folders(trainer)} | {read(directory)["machine"]}
    complaints += [] if named == {"laptop"} else [f"the machine is called {named}"]
    complaints += expect("a point", submit(trainer, folders(trainer)[0]), 2, "is a point of a sweep: `sweep.py ")
    write(trainer.folder / "run.yaml", INPUT | {"model": INPUT["model"] | {"num_layers": 1}})
    complaints += expect("another base", sweep(trainer, "s.yaml"), 2, "is not what it was when", "--directory names another")
    write(trainer.folder / "run.yaml", INPUT)
    for key, value, words in (("machine", "cpu-cluster", "machine cpu-cluster"), ("time", "1:00:00", "jobs of 1:00:00")):
        write(trainer.folder / "s.yaml", SWEEP | {"vary": axes, key: value})
        said = ("was begun on machine laptop with no time limit", f"{words} would be another sweep")
        complaints += expect(f"another {key}", sweep(trainer, "s.yaml"), 2, *said)
    write(trainer.folder / "s.yaml", SWEEP | {"vary": axes, "machine": "laptop"})
    complaints += expect("the machine that it has", sweep(trainer, "s.yaml"), 0, "9 done")
    write(trainer.folder / "laptop.yaml", "{scheduler: none, cores: 1}")
    words = ["s.yaml", "--machine", trainer.folder / "laptop.yaml"]
    complaints += expect("another file of that name", sweep(trainer, *words), 0, "is not what it was", "own machine.yaml")
    complaints += expect("another trainer", sweep(trainer, directory, "--binary", trainer.binary), 2, "--binary cannot be changed")
    return complaints + expect("another machine", sweep(trainer, directory, "--machine", "cpu-cluster"), 2, "--machine cannot be changed")


def grown_from_below(trainer):
    """A weak sweep that gets fewer ranks, or another `fixed`, would make its points otherwise under their old names: refused, and nothing changes."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    weak = {"base": "run.yaml", "kind": "weak", "ranks": 2}
    write(trainer.folder / "s.yaml", weak)
    complaints = expect("two ranks", sweep(trainer, "s.yaml"), 0, "1 done")
    before = (trainer.folder / "runs/s-sweep/sweep.json").read_text()
    for change, words in (({"ranks": [1, 2]}, "ranks=2 with train.global_batch_size=8 where it is now train.global_batch_size=16"),
                          ({"fixed": {"model.hidden_size": 64}}, "ranks=2 with the base's values where it is now model.hidden_size=64")):
        write(trainer.folder / "s.yaml", weak | change)
        complaints += expect(f"{change}", sweep(trainer, "s.yaml"), 2, "1 point would be made otherwise", words, "--directory names another")
    write(trainer.folder / "s.yaml", weak | {"ranks": [2, 4]})
    complaints += expect("more ranks", sweep(trainer, "s.yaml", "--dry-run"), 0, "point 1: 4 ranks")
    return complaints + ([] if before == (trainer.folder / "runs/s-sweep/sweep.json").read_text() else ["sweep.json has changed"])


def own_checkpoints(trainer):
    """Points that would share a checkpoint.directory would go on from each other's steps, so they are dropped, wherever it is named."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "named.yaml", INPUT | {"checkpoint": {"directory": "steps"}})
    named = {"checkpoint.directory": "steps"}
    complaints, said = [], f"checkpoint.directory is {trainer.folder / 'steps'}, where points would go on"
    for what, change in (("base", {"base": "named.yaml"}), ("fixed", {"fixed": named}), ("an axis", {"vary": {"way": {"a": {}, "b": named}}})):
        write(trainer.folder / "s.yaml", {"base": "run.yaml", "ranks": 1} | change)
        ended = sweep(trainer, "s.yaml", "--dry-run")
        complaints += expect(what, ended, 0 if what == "an axis" else 2, said)
    return complaints


def grown_otherwise(trainer):
    """What a file no longer has, points that are there still tell of; a bundle that is called otherwise is another point, an axis another sweep."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    file = {"base": "run.yaml", "ranks": [1, 2], "repetitions": 2, "vary": {"way": {"good": {}}}}
    write(trainer.folder / "s.yaml", file)
    directory = trainer.folder / "runs/s-sweep"
    complaints = expect("first", sweep(trainer, "s.yaml"), 0, "4 done")
    write(trainer.folder / "s.yaml", file | {"ranks": 2, "repetitions": 1, "vary": {"way": {"better": {}}}})
    complaints += expect("then", sweep(trainer, "s.yaml"), 0, "5 done")
    found = read(directory)
    axes = [{"name": "ranks", "values": [1, 2]}, {"name": "way", "values": ["good", "better"]}]
    if found["axes"] != axes or found["repetitions"] != 2 or found["points"][4]["name"] != "ranks=2 way=better":
        complaints.append(f"{found}")
    write(trainer.folder / "s.yaml", file | {"vary": {"path": {"good": {}}}})
    return complaints + expect("an axis", sweep(trainer, "s.yaml"), 2, "was begun with the axes ranks, way, and ", "has ranks, path, so points")


def damaged_or_moved(trainer):
    """One damaged state.json stops no other point; a damaged sweep.json is named, and made again; a copy does not act on the original."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    write(trainer.folder / "s.yaml", {"base": "run.yaml", "ranks": 1, "vary": {"train.seed": [1, 2]}})
    directory, other = trainer.folder / "runs/s-sweep", trainer.folder / "runs/other"
    complaints = expect("first", sweep(trainer, "s.yaml"), 0, "2 done")
    (folders(trainer)[0] / "state.json").write_text("")
    complaints += expect("status", sweep(trainer, directory, "--status"), 0, "1 done, 1 killed", "state.json is damaged: it is empty")
    complaints += expect("an empty state", sweep(trainer, directory), 0, "2 done")
    whole = (directory / "sweep.json").read_text()
    for text in ("", "[]", '{"schema": "quadrille-sweep-1"}', whole.replace('"index"', '"idnex"'), whole[:300]):
        (directory / "sweep.json").write_text(text)
        for words in ((directory,), (directory, "--status"), ("s.yaml",)):
            complaints += expect(f"{text[:40]}, {words}", sweep(trainer, *words), 5, "sweep.json is damaged: it ", "remove it, and the same command")
    (directory / "sweep.json").unlink()
    complaints += expect("made again", sweep(trainer, "s.yaml"), 0, "2 done")
    if [state(folder)["attempts"] for folder in folders(trainer)] != [0, 1] or (directory / "sweep.json").read_text() != whole:
        complaints.append(f"{[state(folder) for folder in folders(trainer)]}")
    (folders(trainer)[0] / "state.json").unlink()
    directory.rename(other)
    for words in ((other,), ("s.yaml", "--directory", other)):
        complaints += expect(f"moved: {words}", sweep(trainer, *words), 2, f"{other} was made as {directory}", "move it back there")
    return complaints + expect("only looked at", sweep(trainer, other, "--status"), 0, "1 done, 1 waiting")


def unwritable(trainer):
    """A point that cannot begin is told of with its exit code, and no file is named that is not there."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    write(trainer.folder / "s.yaml", {"base": "run.yaml", "ranks": 1})
    complaints = expect("first", sweep(trainer, "s.yaml"), 0, "1 done")
    point = folders(trainer)[0]
    for name in ("state.json", "lock"):
        (point / name).unlink()
    (point / "lock").mkdir()
    return complaints + expect("no lock", sweep(trainer, "s.yaml"), 1, "failed   ranks=1: exit code 5, of which state.json says nothing (there it")


def killed(trainer):
    """kill -9 of sweep.py alone: its point ends by itself, once, and the next sweep.py does the others. Of all: the point goes on."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "s.yaml", long_and_short({"checkpoint.interval": 20}))
    complaints = []
    for everything in (False, True):
        name = f"all-{everything}"
        words = ["--binary", trainer.binary, "s.yaml", "--directory", f"runs/{name}"]
        process = start(trainer, "sweep.py", *words)
        checkpoints = lambda: folders(trainer, name)[0].glob("output/checkpoints/step-????????")  # noqa: E731
        if not wait_for(lambda: read_or_none(trainer, name) and any(checkpoints()), 200):
            return [f"it has not begun\n{end(process, 1)}"]
        first = folders(trainer, name)[0]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if everything:
            for victim in processes_of([first]) + ranks_of(first):
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            complaints += expect("status", sweep(trainer, trainer.folder / "runs" / name, "--status"), 0, "1 killed")
        beside = [] if everything else [", still running: their times"]  # the point that goes on by itself
        complaints += expect(name, sweep(trainer, "s.yaml", "--directory", f"runs/{name}"), 0, "2 done", *beside)
        if complaints:
            return complaints
        attempts = [state(folder)["attempts"] for folder in folders(trainer, name)]
        rows = [read_record(folder / "output")["steps/step"].tolist() for folder in folders(trainer, name)]
        if attempts != [2 if everything else 1, 1] or rows != [list(range(1, STEPS + 1)), [1, 2]]:
            complaints.append(f"{name}: attempts {attempts}, steps {[len(row) for row in rows]}")
        if everything and "goes on after step" not in (first / "log.txt").read_text():
            complaints.append(f"{name}: it has begun afresh")
    return complaints


def read_or_none(trainer, name):
    try:
        return read(trainer.folder / "runs" / name)
    except FileNotFoundError:
        return None


def two_at_once(trainer):
    """Two sweep.py share the points, and run none twice."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "s.yaml", SWEEP | {"vary": {"train.seed": [1, 2, 3]}})
    both = [start(trainer, "sweep.py", "--binary", trainer.binary, "s.yaml") for _ in range(2)]
    complaints = [complaint for process in both for complaint in expect("one of two", end(process), 0, "6 done")]
    attempts = [state(folder)["attempts"] for folder in folders(trainer)]
    return complaints + ([] if attempts == [1] * 6 else [f"attempts {attempts}"])


def stopped(trainer):
    """SIGINT: the point saves, and a second call goes on with it."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "s.yaml", long_and_short())
    process = start(trainer, "sweep.py", "--binary", trainer.binary, "s.yaml")
    if not wait_for(lambda: read_or_none(trainer, "s-sweep") and is_training(folders(trainer)[0]), 200):
        return [f"it has not begun\n{end(process, 1)}"]
    process.send_signal(signal.SIGINT)
    complaints = expect("SIGINT", end(process, 200), 75, "stopped by SIGINT", "1 stopped, 1 waiting")
    at_a_step = state(folders(trainer)[0])["reason"].partition(" of ")[0].rpartition(" ")[2] + f"/{STEPS}"
    complaints += expect("status", sweep(trainer, trainer.folder / "runs/s-sweep", "--status"), 0, at_a_step)
    complaints += expect("going on", sweep(trainer, trainer.folder / "runs/s-sweep"), 0, "2 done")
    return complaints + ([] if state(folders(trainer)[0])["attempts"] == 2 else [f"{state(folders(trainer)[0])}"])


def failures(trainer):
    """A point that fails is told of with its reason, and left alone until --retry; others run. Where none can run, nothing is written."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "s.yaml", SWEEP | {"ranks": 1, "vary": {"data.train": [["later.txt"], ["counting.txt"]]}})
    complaints = expect("a failure", sweep(trainer, "s.yaml"), 1, "failed", "exit code 2, quadrille: ", "later.txt", "1 done, 1 failed")
    complaints += expect("left alone", sweep(trainer, "s.yaml"), 1, "1 done, 1 failed")
    if state(folders(trainer)[0])["attempts"] != 1:
        complaints.append(f"a point that failed has run again: {state(folders(trainer)[0])}")
    complaints += expect("status", sweep(trainer, "s.yaml", "--status"), 0, "failed", "later.txt")
    os.link(trainer.folder / "counting.txt", trainer.folder / "later.txt")
    complaints += expect("retry", sweep(trainer, "s.yaml", "--retry"), 0, "2 done")
    write(trainer.folder / "none.yaml", SWEEP | {"ranks": 1, "vary": {"grid.tp": [2, 3]}})
    complaints += expect("none", sweep(trainer, "none.yaml"), 2, "no point can run", "dropped: ranks=1 tp=3")
    write(trainer.folder / "big.yaml", SWEEP | {"ranks": 1, "fixed": {"device.memory_limit": "64KiB"}})
    complaints += expect("too big", sweep(trainer, "big.yaml"), 3, "no point can run", "does not fit in")
    complaints += expect("not begun", sweep(trainer, "none.yaml", "--status"), 2, "no sweep has been begun there")
    left = sorted(path.name for path in (trainer.folder / "runs").iterdir())
    return complaints + ([] if left == ["s-sweep"] else [f"there is now {left}"])


CHECKS = [(check.__name__, check) for check in (whole, grown_from_below, own_checkpoints, grown_otherwise, damaged_or_moved,
                                                  unwritable, killed, two_at_once, stopped, failures)]

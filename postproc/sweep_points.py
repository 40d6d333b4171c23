"""The points of a sweep, or of several runs that are set beside each other: what was varied, and the records that tell of it.

Owns: reading a sweep's directory (its layout: jobscripts/README.md) and seeing what differs between runs of no sweep. A point's repetitions are
one point here. Numbers are scaling.py's to make; what is in a record is record.py's to know. Reads only, so a sweep may be under way.
"""
import dataclasses
import pathlib
import re

import inputs
import record

SCHEMA = "quadrille-sweep-1"


@dataclasses.dataclass(frozen=True)
class Point:
    """One combination of values, with the records of its finished repetitions."""

    name: str
    short: str  # for pictures and sentences: what is the same at all points is left out
    values: dict  # varied key → value; `ranks` is one of them
    runs: list
    trace: object = None  # of the first of these runs, where it left one

    @property
    def ranks(self):
        return self.runs[0].ranks


@dataclasses.dataclass(frozen=True)
class Sweep:
    """All points of a sweep: those with records, and why others have none."""

    name: str
    about: str
    kind: str  # product, weak or strong; runs: of no sweep
    facts: dict  # base, commit, machine and such, for the page
    points: list  # of those with a finished repetition
    dropped: list  # (name, why plan refused it)
    unfinished: list  # (name, state, exit code or None, attempts, reason)


def is_sweep(path):
    return (pathlib.Path(path) / "sweep.json").is_file()


def load_sweep(directory):
    """Reads a sweep's directory. Raises record.RecordError where it is none; a point whose record cannot be read is one of `unfinished`."""
    directory = pathlib.Path(directory)
    sweep = inputs.read_json(directory / "sweep.json", "sweep")
    if sweep.get("schema") != SCHEMA:
        raise record.RecordError(f"{directory / 'sweep.json'} has the schema {sweep.get('schema')}, and what is read here is {SCHEMA}")
    try:
        return _sweep(directory, sweep)
    except (KeyError, TypeError, AttributeError) as error:
        raise record.RecordError(f"{directory / 'sweep.json'} is damaged, or of another version: {error}") from error


def _sweep(directory, sweep):
    found, dropped, unfinished, made = {}, [], [], {}
    for point in sweep["points"]:
        if point["dropped"] is not None:
            dropped.append((point["name"], point["dropped"]))
            continue
        values = {"ranks": point["ranks"], **point["at"]}
        folder, first = directory / point["directory"], made.setdefault(repr(values), point)
        if first["overrides"] != point["overrides"]:
            raise record.RecordError(f"{first['directory']} and {point['directory']} of {directory} have the same values but unlike overrides, so "
                                     "they are no repetitions of one point; runs are set side by side by their own directories")
        run, why = _outcome(folder)
        if run is None:
            unfinished.append((point["name"], *why))
            continue
        name = re.sub(r" ?#\d+$", "", point["name"])
        found.setdefault(repr(values), (name or sweep["name"], values, []))[2].append(run)
    facts = {key: sweep[key] for key in ("base", "commit", "version", "machine", "scales", "grows", "repetitions")}
    varied = [key for key in dict.fromkeys(key for _, values, _ in found.values() for key in values)
              if len({repr(values.get(key)) for _, values, _ in found.values()}) > 1]
    points = [_point(name, " ".join(f"{key.rsplit('.', 1)[-1]}={values.get(key)}" for key in varied) or name, values, runs)
              for name, values, runs in found.values()]
    return Sweep(sweep["name"], sweep["about"], sweep["kind"], facts, points, dropped, unfinished)


def _outcome(folder):
    """(record of a finished run, ()), or (None, (state, exit code, attempts, reason))."""
    state = {"state": "not begun"}
    try:
        if (folder / "state.json").exists():
            state = {"state": "unknown"} | inputs.read_json(folder / "state.json", "run's state")
        if state["state"] == "running" and record.is_held(folder / "lock") is False:
            state["state"] = "killed"
        if state["state"] == "done":
            run = record.load(folder / "output")
            if len(run.step):
                return run, ()
        reason = state.get("reason") or ""
    except record.RecordError as error:
        reason = str(error)
    return None, (state["state"], state.get("exit_code"), state.get("attempts", 0), reason)


def of_runs(paths):
    """Runs of no sweep as one. What was varied is what differs between their inputs; runs that differ in nothing repeat one point.
    Raises record.RecordError."""
    runs = [(name, record.load(path)) for name, path in zip(_names(paths), paths)]
    idle = [(name, "no step", run.exit_code, 1, f"{run.path.name} tells of no step: the run ended before its first") for name, run in runs
            if len(run.step) == 0]
    runs = [(name, run) for name, run in runs if len(run.step)]
    told = [_telling(run) for _, run in runs]
    varied = [key for key in dict.fromkeys(key for keys in told for key in keys) if len({repr(keys.get(key)) for keys in told}) > 1]
    found = {}
    for (name, run), keys in zip(runs, told):
        values = {"ranks": run.ranks, **{key: _word(keys.get(key)) for key in varied}}
        found.setdefault(repr(values), (name, values, []))[2].append(run)
    return Sweep("runs side by side", "", "runs", {}, [_point(name, name, *more) for name, *more in found.values()], [], idle)


def _names(paths):
    """The runs' directories, by their last names where these tell them apart."""
    folders = [path.resolve() if path.is_dir() else path.resolve().parent for path in map(pathlib.Path, paths)]
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(set(folders)) else [str(path) for path in paths]


def _point(name, short, values, runs):
    return Point(name, short, values, runs, _trace(runs[0]))


def _trace(run):
    """The trace beside a record, or None: it serves one column, and a sweep may be without it."""
    try:
        return record.load_trace(run.path.parent)
    except record.RecordError:
        return None


# What says nothing of speed or memory, follows from other keys, or is the machine's of that day.
_NOT_VARIED = ("output.", "checkpoint.", "evaluation.", "data.train", "data.valid", "train.seed", "train.steps", "train.time_limit",
               "optimizer.decay_steps", "grid.dp", "train.gradient_accumulation_steps", "device.memory_limit", "device.host_memory_limit")


def _word(value):
    """A value that can be a key of a dictionary: lists and deeper mappings as their text."""
    return str(value) if isinstance(value, (list, dict)) else value


def _telling(run):
    """{section.key: value} of a run's input, without what tells no two points apart."""
    return {key: value for key, value in inputs.of(run).items() if not key.startswith(_NOT_VARIED)}

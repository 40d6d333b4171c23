"""A sweep's directory: planning its points into it, reading it again, queueing what waits.

Owns the layout of that directory and of sweep.json (jobscripts/README.md), and that no point is planned or queued twice, whoever else is at it. That
none runs twice is the lock of each run (attempt.sh). What points there are is points.py's, what a run is runs.py's.
"""
import contextlib
import dataclasses
import fcntl
import filecmp
import json
import os
import pathlib
import re
import shutil
import sys

import document
import keeping
import machine as machines
import points
import progress
import runs
import slurm
import standing
from document import Refused

SCHEMA = "quadrille-sweep-1"
POINT = {"index": int, "name": str, "at": dict, "repetition": int, "ranks": int, "overrides": [str], "dropped": (str, type(None)),
         "nodes": (int, type(None)), "ranks_per_node": (int, type(None)), "directory": (str, type(None))}
SHAPE = {"schema": str, "name": str, "machine": str, "time": (str, type(None)), "repetitions": int, "axes": [{"name": str, "values": [object]}],
         "points": [POINT]}
REMEDY = "remove it, and the same command with the sweep's file makes it again; points that it makes as before keep what they have done"


@contextlib.contextmanager
def locked(directory):
    """While inside, nobody else plans this sweep's points or queues them. Makes the directory."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "sweep.lock", "a") as file:
            _lock(file, directory)
            if not _is(directory / "sweep.lock", file):  # whoever had it has left nothing
                continue
            yield
            return


def _lock(file, directory):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"waits for another sweep.py, which plans or queues {directory}", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        print(f"{directory}: this file system has no locks, so start no other sweep.py there while this one is at it; points that say `running` "
              "are left alone: of one that was killed, remove its state.json", file=sys.stderr, flush=True)


def _is(path, file):
    """Whether an open file still has that path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def read(directory):
    """sweep.json; None where there is none."""
    path = directory / "sweep.json"
    try:
        schema = keeping.read(path, {"schema": str}, REMEDY)["schema"]
        if schema != SCHEMA:
            raise Refused(f"{path} is of schema {schema}; this sweep.py knows {SCHEMA}")
        return keeping.read(path, SHAPE, REMEDY)
    except FileNotFoundError:
        return None


def check_place(sweep, directory):
    """Raises Refused where the directory is not where the sweep was made: its points' scripts act on what is there."""
    made = next((runs.made_as(directory / point["directory"]) for point in kept(sweep)), None)
    if made:
        runs.refuse_moved(directory, made.parents[1], "sweep.py")


def said_at_first(directory, keys):
    """{key: what the sweep's file said of it when it was last read}, None where it said nothing."""
    entries = document.read(directory / "sweep.yaml", document.Problems(directory / "sweep.yaml"))
    return {key: None if key not in entries or entries[key].value == "null" else entries[key].value for key in keys}


def leave_nothing(directory):
    """Removes a sweep's directory that holds nothing but its lock: no point could run."""
    if [path.name for path in directory.iterdir()] == ["sweep.lock"]:
        (directory / "sweep.lock").unlink()
        directory.rmdir()


def kept(sweep):
    return [point for point in sweep["points"] if not point["dropped"]]


# ---- planning --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Planner:
    """What the points of a sweep have in common."""

    file: points.Sweep
    directory: pathlib.Path
    trainer: runs.Trainer
    machine: machines.Machine

    def plan(self, point, index):
        """A point with its layout and directory, or why it is dropped; and the run, None where it is."""
        point = point | {"index": index, "nodes": None, "ranks_per_node": None, "directory": None}
        if point["dropped"]:
            return point, None
        place = self.directory / "points" / points.directory_name(index, point)
        try:
            layout = machines.lay_out(self.machine, ranks=point["ranks"])
            prepared = runs.prepare(self.trainer, self.machine, layout, self.file.base, point["overrides"], place)
            if not prepared.checkpoints.is_relative_to(place):
                raise Refused(f"checkpoint.directory is {prepared.checkpoints}, where points would go on from each other's: not in a sweep")
        except Refused as refused:
            return point | {"dropped": self.in_words_of_the_file(str(refused))}, None
        place = {"nodes": layout.nodes, "ranks_per_node": layout.ranks_per_node, "directory": str(place.relative_to(self.directory))}
        return point | place, prepared

    def in_words_of_the_file(self, complaint):
        """`plan` counts overrides, which nobody wrote as such: each is told by what it is of in the sweep file."""
        return re.sub(r"override \d+ '([\w.]+)=", lambda place: f"{points.origin(self.file, place[1])}, '{place[1]}=", complaint)

    def plan_new(self, former):
        """The points of the file: those of `former` as they are, and behind them the others, planned; and the runs of these, {index: Prepared}.

        Raises Refused where one of them has a former one's values, but is made otherwise.
        """
        known = {points.identity(point): point for point in former}
        new = [point for point in points.expand(self.file, self.resolve) if points.identity(point) not in known]
        changed = points.made_otherwise(former, new)
        if changed:
            count = f"{len(changed)} point{'s' * (len(changed) > 1)}"
            raise Refused(f"{count} would be made otherwise than before, {changed[0]}, so points would not compare; --directory names another")
        planned, prepared = list(former), {}
        bar = progress.Bar(f"{self.file.name}: plans", len(new))
        for point in new:
            bar.show(point["name"])
            point, run = self.plan(point, len(planned))
            planned.append(point)
            prepared |= {point["index"]: run} if run else {}
            bar.step()
        bar.end()
        return planned, prepared

    def resolve(self, words, ranks):
        """The base as resolved on so many ranks, {section.key: text}."""
        done = self.trainer.plan(self.file.base, words, ranks, "--resolved")
        if done.returncode:
            raise Refused(self.in_words_of_the_file(runs.complaint(done)))
        return runs.keys_of(done.stdout)


def expand(file, directory, trainer, machine, time, dry):
    """sweep.json's object with all points of the file, those that were there as they were; also written, unless `dry` or no point can run.

    Raises Refused where the directory is of another sweep.
    """
    former = read(directory)
    if former and not filecmp.cmp(file.base, directory / "base.yaml", shallow=False):
        raise Refused(f"{file.base} is not what it was when {directory} was begun, so points would not compare; --directory names another")
    axes = _axes(file, former["axes"] if former else [], directory)
    planned, prepared = Planner(file, directory, trainer, machine).plan_new(former["points"] if former else [])
    sweep = {"schema": SCHEMA, "name": file.name, "about": file.about, "kind": file.kind, "scales": file.scales, "grows": file.grows,
             "base": str(file.base), "commit": trainer.commit, "version": trainer.version, "machine": machine.name,
             "time": time, "axes": axes, "repetitions": max(file.repetitions, former["repetitions"] if former else 1), "points": planned}
    if not dry and kept(sweep):
        if not former:
            runs.write_tools(directory, trainer, machine)
            shutil.copyfile(file.base, directory / "base.yaml")
        for index, run in prepared.items():
            runs.write_run(run, trainer, machine, f"{file.name}-{index}", time, directory)
        keeping.write_whole(directory / "sweep.yaml", file.path.read_text())
        keeping.write_whole(directory / "sweep.json", json.dumps(sweep, indent=1) + "\n")
    return sweep


def _axes(file, former, directory):
    """The axes with all values that points have: those that were there, and behind them the file's others. Raises Refused where they are others."""
    asked = {"ranks": file.ranks} | {axis.name: [plain for plain, _ in axis.values] for axis in file.vary}
    names = [axis["name"] for axis in former] or list(asked)
    if set(names) != set(asked):
        raise Refused(f"{directory} was begun with the axes {', '.join(names)}, and {file.path} has {', '.join(asked)}, so points would not compare; "
                      "--directory names another")
    values = {axis["name"]: axis["values"] for axis in former} if former else asked
    return [{"name": name, "values": list({json.dumps(value): value for value in values[name] + asked[name]}.values())} for name in names]


# ---- what waits ------------------------------------------------------------------------------------------------------


def waiting(sweep, directory, retry):
    """Points to be begun or gone on with, in their order; with `retry` those that failed, too."""
    wanted = {"waiting", "killed", "stopped"} | ({"failed"} if retry else set())
    return [point for point in kept(sweep) if state(point, directory)["state"] in wanted and not is_under_way(point, directory)]


def is_under_way(point, directory):
    return standing.is_locked(directory / point["directory"] / "lock")


def state(point, directory):
    return standing.state_of(directory / point["directory"])


def queue(sweep, directory, machine, retry, at_once):
    """Submits what waits and is not queued: an array for each number of nodes and of ranks on them. Yields what there is to tell."""
    queued = slurm.queued(directory)
    groups = {}
    for point in waiting(sweep, directory, retry):
        if point["index"] not in queued:
            groups.setdefault((point["nodes"], point["ranks_per_node"]), {})[point["index"]] = directory / point["directory"]
    for (nodes, ranks_per_node), folders in sorted(groups.items()):
        layout = machines.lay_out(machine, nodes=nodes, ranks_per_node=ranks_per_node)
        script = directory / f"array-{nodes}-{ranks_per_node}.sh"
        head = slurm.script_head(machine, layout, sweep["name"], sweep["time"], script.with_suffix(".log"))
        runs.write_script(script, head + runs.array_body(folders))
        number = slurm.submit(directory, script, list(folders), at_once)
        yield f"queued as array {number}: points {slurm.ranges(folders)}, on {nodes} node{'s' * (nodes > 1)} with {ranks_per_node} ranks each"
    if not groups:
        yield f"nothing to queue{f': {len(queued)} points are in the queue' if queued else ''}"

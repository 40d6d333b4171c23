"""The run record and the trace as numpy arrays. Their layout, by which each file is checked when it is opened, is layout.py's.

    import record
    run = record.load("runs/quickstart")
    run.loss[-1], run.seconds_of("compute").mean()
    trace = record.load_trace("runs/quickstart")

What cannot be read raises RecordError, a sentence for the user. Checksums are left to `quadrille inspect`. Needs h5py and numpy. Reads only.
"""
import dataclasses
import fcntl
import math
import os
import pathlib
import re
import sys

import h5py
import numpy

import layout

RUN_SCHEMA, TRACE_SCHEMA = "quadrille-run-1", "quadrille-trace-1"
MISSING, DAMAGED = 2, 5  # exit codes, as quadrille's


class RecordError(Exception):
    """Why a record is not there, or is none; `code` is what a script exits with."""

    def __init__(self, sentence, code=DAMAGED):
        super().__init__(sentence)
        self.code = code


def exit_code(tool, work, place=""):
    """What `tool` exits with, which does `work`, a function. What cannot be read is told of, and what cannot be written: to `place`, where the error
    names no file."""
    try:
        work()
    except RecordError as error:
        print(f"{tool}: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"{tool}: {error.filename or place} cannot be written: {error.strerror}", file=sys.stderr)
        return DAMAGED
    return 0


@dataclasses.dataclass(frozen=True)
class Record:
    """A run. Shapes are in brackets; bytes, seconds and FLOPs are bare numbers in those units."""

    schema: str
    version: str
    git_commit: str
    command: str
    start_time: str
    exit_code: int  # -1: still running, or killed
    complete: bool
    config_yaml: str
    environment: dict
    choices: dict  # what `auto` took where the machine was asked, and why
    coordinates: numpy.ndarray  # [rank, 4] dp, tp, pp, sp
    hosts: list
    step: numpy.ndarray  # [step], as all down to residual_norm
    loss: numpy.ndarray
    grad_norm: numpy.ndarray
    clip_factor: numpy.ndarray
    learning_rate: numpy.ndarray
    loss_scale: numpy.ndarray
    tokens: numpy.ndarray
    seconds: numpy.ndarray
    data_hash: numpy.ndarray
    residual_norm: numpy.ndarray
    evaluation_step: numpy.ndarray  # [evaluation], as the next two
    evaluation_loss: numpy.ndarray
    evaluation_seconds: numpy.ndarray
    categories: list
    time: numpy.ndarray  # [step, rank, category]
    tiers: list
    books: list
    predicted_peak: numpy.ndarray  # [rank, tier, book]
    measured_peak: numpy.ndarray
    reserved: numpy.ndarray  # [rank, tier] bytes of the arenas, of what collectives pass through, and of nvme's file
    huge_pages: numpy.ndarray  # [rank, tier] bytes of the arenas in huge pages; -1: the system does not tell
    shared: numpy.ndarray  # [rank] bytes of other ranks' memory that the process maps
    process_peak: numpy.ndarray  # [rank]
    wire_axes: list
    wire_predicted: numpy.ndarray  # [rank, axis] per step
    wire_sent: numpy.ndarray
    wire_uncompressed: numpy.ndarray
    wire_busy: numpy.ndarray  # [step, rank, axis] seconds in which a move was under way
    wire_exposed: numpy.ndarray  # ... in which a rank only waited for them
    compute_beside: numpy.ndarray  # [step, rank] seconds of arithmetic while a move was under way
    compute_alone: numpy.ndarray  # ... and what it takes with none
    wire_estimated: bool
    copy_queues: list
    copies_predicted: numpy.ndarray  # [rank, queue] per step, between tiers
    copies_moved: numpy.ndarray
    model_flops: float  # per step, whole job
    hardware_flops: float
    continues: str = ""  # of a run that went on with a checkpoint: the record of the steps before, or the checkpoint's folder
    continues_after: int = 0  # ... and the step
    path: pathlib.Path = None

    @property
    def ranks(self):
        return len(self.coordinates)

    @property
    def tokens_per_second(self):
        """Over all steps."""
        return self.tokens.sum() / self.seconds.sum()

    def seconds_of(self, category):
        """[step, rank] of one time category."""
        return self.time[:, :, self.categories.index(category)]

    def up_to(self, step):
        """The same run, with the rows up to this step."""
        kept = {"step": self.step <= step, "evaluation": self.evaluation_step <= step}
        tables = [(row.field, row.dims.split()[0]) for row in layout.RUN if isinstance(row, layout.Dataset) and row.dims]
        return dataclasses.replace(self, **{field: getattr(self, field)[kept[dim]] for field, dim in tables if dim in kept})


@dataclasses.dataclass(frozen=True)
class Trace:
    """What ran when in the traced steps, in seconds since the run's start on rank 0's clock, and one step's memory over time."""

    queues: list
    ops: list
    step: numpy.ndarray  # [event], as all down to end
    rank: numpy.ndarray
    queue: numpy.ndarray  # rows of queues
    op: numpy.ndarray  # rows of ops
    begin: numpy.ndarray
    end: numpy.ndarray
    tiers: list
    books: list
    memory_rank: numpy.ndarray  # [change], as the next three
    memory_tier: numpy.ndarray  # rows of tiers
    memory_op: numpy.ndarray  # rows of ops: the op before which it happens
    memory_time: numpy.ndarray
    memory_bytes: numpy.ndarray  # [change, book] in use from there on


def newest(directory):
    """The path of the directory's newest record: run.h5, or run-2.h5 and so on where the run went on on another grid. A job's directory
    (jobscripts/submit.py) has its run in output/."""
    folders = [folder for folder in (pathlib.Path(directory), pathlib.Path(directory) / "output") if folder.is_dir()]
    matches = [(re.fullmatch(r"run(?:-(\d{1,6}))?\.h5", path.name), path) for folder in folders for path in folder.iterdir()]
    names = [(int(found[1] or 1), path) for found, path in matches if found]
    if not names:
        raise RecordError(f"{directory} holds no run.h5, which every run that has begun leaves{_what_it_is(pathlib.Path(directory))}", MISSING)
    return max(names)[1]


def _what_it_is(directory):
    """A hint at what was meant, where the directory is of something else of ours."""
    if not directory.is_dir():
        return ""
    if (directory / "sweep.json").exists():
        return f": it is a sweep's, whose points are {directory}/points/*"
    within = [path for path in sorted(directory.iterdir()) if path.is_dir()]
    if any(re.fullmatch(r"step-\d+", path.name) for path in within):
        return f": it holds checkpoints, and the run may be {directory.parent}"
    runs = [path for path in within if (path / "run.h5").exists() or (path / "output/run.h5").exists()]
    return f": it holds {len(runs)} runs, such as {runs[0]}" if len(runs) > 1 else f": the run may be {runs[0]}" if runs else ""


def trace_of(path):
    """The path of the trace that a record's run left; None where there is none. Of a chain of records the newest run's is there."""
    path = pathlib.Path(path)
    in_chain = re.fullmatch(r"run(-\d{1,6})?\.h5", path.name)
    trace = path.with_name("trace.h5" if in_chain else path.name.replace("run", "trace", 1))
    return None if trace == path or not trace.is_file() or (in_chain and newest(path.parent) != path) else trace


def is_held(path):
    """Whether somebody holds the lock on a file or directory, as a run does on its directory and attempt.sh on `lock`; None where nobody can tell."""
    try:
        held = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(held)
    return False


def load(path):
    """Reads a record, or the newest one of a run's directory. Raises RecordError."""
    path = _existing(path)
    if path.is_dir():
        path = newest(path)
    run = Record(**_read(path, RUN_SCHEMA, layout.RUN), path=path)
    _check_grid(run)
    return run


def history(path):
    """The records of a run that went on on other grids, oldest first, each with the rows that count; the last is load(path)."""
    runs = [load(path)]
    while runs[0].continues:
        before = runs[0].path.parent / pathlib.Path(runs[0].continues).name
        if not before.is_file() or before in [run.path for run in runs]:
            break  # it went on from a checkpoint of elsewhere
        runs.insert(0, load(before).up_to(runs[0].continues_after))
    return runs


def load_trace(path):
    """Reads trace.h5, or that of a run's directory. Raises RecordError."""
    path = _existing(path)
    if path.is_dir():
        beside = [folder / "trace.h5" for folder in (path, path / "output") if (folder / "trace.h5").exists()]
        if not beside:
            raise RecordError(f"{path} holds no trace.h5; run with output.trace=true", MISSING)
        path = beside[0]
    trace = Trace(**_read(path, TRACE_SCHEMA, layout.TRACE))
    early = numpy.flatnonzero(trace.end < trace.begin)
    if len(early):
        raise RecordError(f"{path} is damaged: event {early[0]} begins at {trace.begin[early[0]]} s and ends at {trace.end[early[0]]} s")
    return trace


def _existing(path):
    path = pathlib.Path(path)
    if not path.exists():
        raise RecordError(f"{path}: there is no such file or directory", MISSING)
    return path


def _read(path, schema, rows):
    """{field: value} of a file of that schema, by the rows of its layout; every way in which it can be none is a RecordError."""
    try:
        with h5py.File(path, "r") as file:
            found = layout.attribute(file, layout.SCHEMA)
            if found != schema:
                kind = {RUN_SCHEMA: "a run's record", TRACE_SCHEMA: "a trace"}.get(found, f"a file of another layout ({found})")
                raise RecordError(f"{path} is {kind}, and what is read here is {schema}", MISSING if found in (RUN_SCHEMA, TRACE_SCHEMA) else DAMAGED)
            return layout.read(file, rows)
    except layout.Damage as error:
        raise RecordError(f"{path} is damaged, or of another version: {error}") from error
    except (OSError, RuntimeError) as error:
        raise RecordError(f"{path} cannot be read, it is damaged or no HDF5 file: {str(error).splitlines()[0]}") from error


def _check_grid(run):
    """Raises RecordError where ranks are not one at each place of a grid."""
    extents = [int(extent) for extent in run.coordinates.max(axis=0, initial=-1) + 1]
    places = len(numpy.unique(run.coordinates, axis=0))
    if not run.ranks or math.prod(extents) != run.ranks or places != run.ranks:
        raise RecordError(f"{run.path} is damaged: grid/coordinates has {run.ranks} ranks at {places} places, where its grid of "
                          f"{' x '.join(map(str, extents))} has {math.prod(extents)}")

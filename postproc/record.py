"""The run record and the trace as numpy arrays: the one Python module that knows their layout (src/record/README.md).

    import record
    run = record.load("runs/quickstart")
    run.loss[-1], run.seconds_of("compute").mean()
    trace = record.load_trace("runs/quickstart")

What cannot be read raises RecordError, a sentence for the user. Checksums are left to `quadrille inspect`. Needs h5py and numpy. Reads only.
"""
import dataclasses
import fcntl
import os
import pathlib
import re
import sys

import h5py
import numpy

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
        kept, evaluated = self.step <= step, self.evaluation_step <= step
        rows = {name: getattr(self, name)[kept] for name in (*STEP_COLUMNS, "time", "wire_busy", "wire_exposed", "compute_beside", "compute_alone")}
        return dataclasses.replace(self, **rows, **{name: getattr(self, name)[evaluated] for name in EVALUATION_COLUMNS})


STEP_COLUMNS = ("step", "loss", "grad_norm", "clip_factor", "learning_rate", "loss_scale", "tokens", "seconds", "data_hash", "residual_norm")
EVALUATION_COLUMNS = ("evaluation_step", "evaluation_loss", "evaluation_seconds")


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
    run = _read(path, RUN_SCHEMA, _record)
    _check_shapes(run, path)
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
    trace = _read(path, TRACE_SCHEMA, _trace)
    for index, names, count in ((trace.queue, trace.queues, trace.step), (trace.op, trace.ops, trace.step),
                                (trace.memory_tier, trace.tiers, trace.memory_time), (trace.memory_op, trace.ops, trace.memory_time)):
        if len(index) != len(count) or (len(index) and not 0 <= index.min() <= index.max() < len(names)):
            raise RecordError(f"{path} is damaged: its tables do not belong together")
    return trace


def _existing(path):
    path = pathlib.Path(path)
    if not path.exists():
        raise RecordError(f"{path}: there is no such file or directory", MISSING)
    return path


def _read(path, schema, reader):
    """What `reader` makes of the file; every way in which it can be none is a RecordError."""
    try:
        with h5py.File(path, "r") as file:
            found = file.attrs.get("schema", "no schema")
            if found != schema:
                kind = {RUN_SCHEMA: "a run's record", TRACE_SCHEMA: "a trace"}.get(found, f"a file of another layout ({found})")
                raise RecordError(f"{path} is {kind}, and what is read here is {schema}", MISSING if found in (RUN_SCHEMA, TRACE_SCHEMA) else DAMAGED)
            return reader(file)
    except KeyError as error:
        raise RecordError(f"{path} is damaged, or of another version: {error.args[0]}") from error
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise RecordError(f"{path} cannot be read, it is damaged or no HDF5 file: {str(error).splitlines()[0]}") from error


def _record(f):
    steps = {name: f["steps"][name][()] for name in STEP_COLUMNS}
    return Record(
        **{name: f.attrs[name] for name in ("schema", "version", "git_commit", "command", "start_time")},
        **steps,
        exit_code=int(f.attrs["exit_code"]),
        complete=bool(f.attrs["complete"]),
        config_yaml=f["config"].attrs["yaml"],
        environment=dict(f["environment"].attrs),
        choices=dict(f["choices"].attrs),
        coordinates=f["grid/coordinates"][()],
        hosts=_names(f["grid/hosts"]),
        evaluation_step=f["evaluation/step"][()],
        evaluation_loss=f["evaluation/loss"][()],
        evaluation_seconds=f["evaluation/seconds"][()],
        categories=_names(f["time/categories"]),
        time=f["time/seconds"][()],
        tiers=_names(f["memory/tiers"]),
        books=_names(f["memory/books"]),
        predicted_peak=f["memory/predicted_peak"][()],
        measured_peak=f["memory/measured_peak"][()],
        reserved=f["memory/reserved"][()],
        huge_pages=f["memory/huge_pages"][()],
        shared=f["memory/shared"][()],
        process_peak=f["memory/process_peak"][()],
        wire_axes=_names(f["wire/axes"]),
        wire_predicted=f["wire/predicted"][()],
        wire_sent=f["wire/sent"][()],
        wire_uncompressed=f["wire/uncompressed"][()],
        wire_busy=f["wire/busy"][()],
        wire_exposed=f["wire/exposed"][()],
        compute_beside=f["wire/compute_beside"][()],
        compute_alone=f["wire/compute_alone"][()],
        wire_estimated=bool(f["wire/sent"].attrs["estimated"]),
        copy_queues=_names(f["copies/queues"]),
        copies_predicted=f["copies/predicted"][()],
        copies_moved=f["copies/moved"][()],
        model_flops=float(f["flops/model"][()]),
        hardware_flops=float(f["flops/hardware"][()]),
        continues=str(f.attrs.get("continues", "")),
        continues_after=int(f.attrs.get("continues_after", 0)),
        path=pathlib.Path(f.filename),
    )


def _check_shapes(run, path):
    """Raises RecordError where tables do not belong together."""
    sizes = {"step": len(run.step), "rank": len(run.coordinates), "category": len(run.categories), "tier": len(run.tiers), "book": len(run.books),
             "axis": len(run.wire_axes), "queue": len(run.copy_queues), "evaluation": len(run.evaluation_step)}
    shapes = {"step": STEP_COLUMNS, "evaluation": EVALUATION_COLUMNS, "step rank category": ("time",),
              "rank tier book": ("predicted_peak", "measured_peak"), "rank tier": ("reserved", "huge_pages"), "rank": ("shared", "process_peak"),
              "rank axis": ("wire_predicted", "wire_sent", "wire_uncompressed"), "step rank axis": ("wire_busy", "wire_exposed"),
              "step rank": ("compute_beside", "compute_alone"), "rank queue": ("copies_predicted", "copies_moved")}
    for dims, names in shapes.items():
        wanted = tuple(sizes[dim] for dim in dims.split())
        for name in names:
            if getattr(run, name).shape != wanted:
                raise RecordError(f"{path} is damaged: its table {name} has the shape {getattr(run, name).shape}, where others make it {wanted}")
    if run.coordinates.shape != (sizes["rank"], 4) or len(run.hosts) != sizes["rank"]:
        raise RecordError(f"{path} is damaged: it has coordinates of {sizes['rank']} ranks and hosts of {len(run.hosts)}")


def _trace(f):
    columns = {name: f["trace"][name][()] for name in ("step", "rank", "queue", "op", "begin", "end")}
    memory = {f"memory_{name}": f["memory"][name][()] for name in ("rank", "tier", "op", "time", "bytes")}
    return Trace(queues=_names(f["trace/queues"]), ops=_names(f["trace/ops"]), **columns,
                 tiers=_names(f["memory/tiers"]), books=_names(f["memory/books"]), **memory)


def _names(dataset):
    return [str(name) for name in dataset.asstr()[()]]

"""The run record as numpy arrays: the one Python module that knows the layout of run.h5 (src/record/README.md).

    import record
    run = record.load("runs/quickstart")
    run.loss[-1], run.seconds_of("compute").mean()

Needs h5py and numpy. Reads only.
"""
import dataclasses
import pathlib

import h5py
import numpy


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

    def peak_of(self, tier, book):
        """[rank] measured bytes of one book at one tier's high-water mark."""
        return self.measured_peak[:, self.tiers.index(tier), self.books.index(book)]


def load(path):
    """Reads run.h5, or the directory that holds it. Raises OSError or KeyError where it is not a whole record."""
    path = pathlib.Path(path)
    if path.is_dir():
        path = path / "run.h5"  # of a run that went on on another grid, name run-2.h5
    with h5py.File(path, "r") as f:
        steps = {name: f["steps"][name][()] for name in f["steps"]}
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
        )


def _names(dataset):
    return [str(name) for name in dataset.asstr()[()]]

"""From a record to the numbers that figures show. Pure functions of a record.Record, in seconds, bytes and FLOPs; nothing here draws.

Means and medians leave out a run's first step, which allocates and warms up, wherever there are others: `warm`.
"""
import dataclasses

import numpy

BESIDE_STAGES = ("data", "checkpoint")  # no part of what a pipeline's schedule fills: shares of its idle time are of the step without them
COPIES = {"copies": (("copy_in", "copy_out"), "exposed_copy"), "disk": (("disk",), "exposed_disk")}  # queues, and the category that waits for them
EXPOSED = ("exposed_dp", "exposed_tp", "exposed_sp", "exposed_pp")


def warm(run):
    """The rows of steps that means are over: all but the first, or the only one."""
    return slice(1 if len(run.step) > 1 else 0, len(run.step))


def binned(table, most):
    """Means of consecutive rows so that at most `most` are left: ([(first row, last row)], [group, ...])."""
    rows = len(table)
    groups = min(rows, most)
    edges = [rows * group // groups for group in range(groups + 1)] if groups else [0]
    spans = [(first, last - 1) for first, last in zip(edges, edges[1:])]
    means = [table[first:last + 1].mean(axis=0) for first, last in spans]
    return spans, numpy.array(means) if means else table[:0]


# ---- losses --------------------------------------------------------------------------------------------------------------

def joined(runs, name):
    """One column of the rows of runs that follow each other."""
    return numpy.concatenate([getattr(run, name) for run in runs])


# ---- speed ---------------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Speed:
    """By step; `peak` is the job's hardware peak in flop/s, 0 where it is not known."""

    tokens_per_second: numpy.ndarray
    model_flops_per_second: numpy.ndarray
    hardware_flops_per_second: numpy.ndarray
    peak: float

    @property
    def mfu(self):
        """[step] share of the peak that the model's FLOPs are (Narayanan et al. 2021, section 5.1)."""
        return self.model_flops_per_second / self.peak if self.peak else numpy.full(len(self.model_flops_per_second), numpy.nan)


def speed(run, peak_of_rank=0.0):
    seconds = numpy.where(run.seconds > 0, run.seconds, numpy.nan)
    return Speed(run.tokens / seconds, run.model_flops / seconds, run.hardware_flops / seconds, peak_of_rank * run.ranks)


def median_and_spread(values):
    """(median, least, most) of what is finite; NaN where nothing is."""
    finite = values[numpy.isfinite(values)]
    return (float(numpy.median(finite)), float(finite.min()), float(finite.max())) if len(finite) else (numpy.nan,) * 3


# ---- time ----------------------------------------------------------------------------------------------------------------

def time_by_rank(run):
    """[rank, category] seconds of a step, mean over warm steps."""
    return run.time[warm(run)].mean(axis=0) if len(run.step) else numpy.zeros((run.ranks, len(run.categories)))


def time_by_step(run):
    """[step, category] seconds, mean over ranks."""
    return run.time.mean(axis=1) if run.ranks else numpy.zeros((len(run.step), len(run.categories)))


def used_categories(run):
    """Names of the categories that took any time, in the record's order."""
    return [name for i, name in enumerate(run.categories) if len(run.step) and (run.time[:, :, i] > 0).any()]


def shares(run):
    """{category: share of the rank-seconds of warm steps}; empty where there is no step."""
    seconds = time_by_rank(run).sum(axis=0)
    total = seconds.sum()
    return {name: float(value / total) for name, value in zip(run.categories, seconds)} if total > 0 else {}


# ---- memory --------------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class TierPeak:
    """One tier's high-water mark on its fullest rank; books as [book] bytes."""

    tier: str
    rank: int
    predicted: numpy.ndarray
    measured: numpy.ndarray

    @property
    def peak(self):
        return int(max(self.predicted.sum(), self.measured.sum()))


def was_measured(run):
    return bool(run.measured_peak.any())


def fullest_ranks(run):
    """The tiers in use, each with its fullest rank: by what was measured or, before that, predicted."""
    found = []
    for t, tier in enumerate(run.tiers):
        totals = (run.measured_peak if was_measured(run) else run.predicted_peak)[:, t].sum(axis=1)
        if len(totals) and (totals.any() or run.predicted_peak[:, t].any()):
            rank = int(totals.argmax())
            found.append(TierPeak(tier, rank, run.predicted_peak[rank, t], run.measured_peak[rank, t]))
    return found


def equal_ranks(run):
    """On how many ranks every book of every tier was measured as it was predicted."""
    return int((run.predicted_peak == run.measured_peak).all(axis=(1, 2)).sum())


def beside_reserved(run):
    """[rank] bytes of the process that are neither reserved by the run nor mapped of other ranks; 0 where nothing was measured."""
    reserved = run.reserved[:, [run.tiers.index("device"), run.tiers.index("host")]].sum(axis=1)
    return numpy.where(run.process_peak > 0, numpy.maximum(0, run.process_peak - reserved - run.shared), 0)


# ---- moves ---------------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Moves:
    """Of one set of axes: seconds per step, means over ranks and warm steps; bytes per step of the whole job."""

    axes: str
    busy: float
    exposed: float
    predicted: int
    sent: int

    @property
    def hidden(self):
        return max(0.0, self.busy - self.exposed)

    @property
    def hidden_share(self):
        return self.hidden / self.busy if self.busy > 0 else float("nan")


def moves(run):
    """By set of axes. Messages between stages (pp) are exposed only for what is not pipeline_idle."""
    rows, steps = warm(run), len(run.step)
    return [Moves(name, float(run.wire_busy[rows, :, a].mean()) if steps else 0.0, float(run.wire_exposed[rows, :, a].mean()) if steps else 0.0,
                  int(run.wire_predicted[:, a].sum()), int(run.wire_sent[:, a].sum())) for a, name in enumerate(run.wire_axes)]


@dataclasses.dataclass(frozen=True)
class Copies:
    """Of one queue between tiers: bytes per step of the whole job."""

    queue: str
    predicted: int
    moved: int


def copies(run):
    """The queues that carry anything."""
    found = [Copies(name, int(run.copies_predicted[:, q].sum()), int(run.copies_moved[:, q].sum())) for q, name in enumerate(run.copy_queues)]
    return [queue for queue in found if queue.predicted or queue.moved]


LEAST_BESIDE = 1e-3  # seconds a step: of less, clocks and what else runs on the cores say more than the moves


def rate_beside(run):
    """The share of its rate that arithmetic kept beside moves under way, at most 1: more is noise. NaN where too little was comparable."""
    rows = warm(run)
    beside, alone = (float(table[rows].mean()) if len(run.step) else 0.0 for table in (run.compute_beside, run.compute_alone))
    return min(1.0, alone / beside) if beside >= LEAST_BESIDE and alone > 0 else float("nan")

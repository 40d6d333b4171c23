"""What changed between two runs, as numbers and tables. Pure functions of two record.Record; compare.py prints and draws them."""
import dataclasses
import math

import numpy

import inputs
import ledgers
import look
from page import Column, Table


@dataclasses.dataclass(frozen=True)
class Series:
    """One column of both runs over the steps that both have. `first`: the index of the first step whose bits differ, None where none does."""

    step: numpy.ndarray
    a: numpy.ndarray
    b: numpy.ndarray

    @property
    def differs(self):
        """[step] a mask: other bits, but for NaNs, of which one is like another."""
        return ~((self.a.view(numpy.int64) == self.b.view(numpy.int64)) | (numpy.isnan(self.a) & numpy.isnan(self.b)))

    @property
    def first(self):
        return int(self.differs.argmax()) if self.differs.any() else None

    @property
    def relative(self):
        """[step] |a − b| ÷ |a|; NaN where either is not finite."""
        with numpy.errstate(all="ignore"):
            found = numpy.where(self.a == self.b, 0.0, numpy.abs(self.a - self.b) / numpy.abs(self.a))
        return numpy.where(numpy.isfinite(self.a) & numpy.isfinite(self.b), found, numpy.nan)


def series(a, b, name):
    """A column of doubles of runs that follow each other (record.history), of both."""
    step_a, step_b = ledgers.joined(a, "step"), ledgers.joined(b, "step")
    common, at_a, at_b = numpy.intersect1d(step_a, step_b, return_indices=True)
    return Series(common, ledgers.joined(a, name)[at_a], ledgers.joined(b, name)[at_b])


def sentence(name, found):
    """'losses: ...' of a series: whether and from which step on its bits differ, and by how much."""
    if not len(found.step):
        return f"{name}: the runs have no step in common"
    span = f"steps {found.step[0]} to {found.step[-1]}" if len(found.step) > 1 else f"step {found.step[0]}"
    if found.first is None:
        return f"{name}: equal bit for bit in all {len(found.step)} common steps ({span})"
    at = found.first
    before = f"equal bit for bit up to step {found.step[at - 1]}, " if at else ""
    text = f"{name}: {before}different from step {found.step[at]} on: {found.a[at]:.17g} and {found.b[at]:.17g}"
    relative = found.relative
    if numpy.isfinite(relative).any():
        most = int(numpy.nanargmax(relative))
        text += f"; at most {relative[most]:.2g} relative, at step {found.step[most]}"
    return text


def data_sentence(a, b):
    found = series(a, b, "data_hash")
    differs = found.a != found.b
    if not len(found.step):
        return "data: the runs have no step in common"
    return f"data: other tokens from step {found.step[int(differs.argmax())]} on" if differs.any() else "data: the same tokens in all common steps"


# ---- tables --------------------------------------------------------------------------------------------------------------

NAMES = ("output.directory", "checkpoint.directory")  # keys that name a run, and differ between any two


def changed_inputs(a, b):
    rows = [(key, _word(one), _word(other)) for key, one, other in inputs.differences(inputs.of(a), inputs.of(b)) if key not in NAMES]
    return Table("inputs", "The inputs, where they differ", "", [Column("key"), Column("A"), Column("B")], rows)


def changed_environment(a, b):
    rows = [("ranks", str(a.ranks), str(b.ranks)), ("version", a.version, b.version), ("commit", a.git_commit, b.git_commit)]
    rows += [(key, _word(a.environment.get(key)), _word(b.environment.get(key))) for key in sorted(a.environment.keys() | b.environment.keys())]
    rows += [(f"auto: {key}", _word(a.choices.get(key)), _word(b.choices.get(key))) for key in sorted(a.choices.keys() | b.choices.keys())]
    columns = [Column("what"), Column("A"), Column("B")]
    return Table("machines", "Machine and program, where they differ", "", columns, [row for row in rows if row[1] != row[2]])


def _word(value):
    return "–" if value is None else str(value)


def speeds(a, b):
    """Medians of the warm steps, and their quartiles."""
    rows = []
    for name, unit, of in (("throughput", "tokens/s", lambda run: ledgers.speed(run).tokens_per_second),
                           ("time of a step", "s", lambda run: run.seconds)):
        (low, one, high), (low_b, other, high_b) = (numpy.quantile(of(run)[ledgers.warm(run)], [0.25, 0.5, 0.75]).tolist() for run in (a, b))
        rows.append((name, unit, one, low, high, other, low_b, high_b, other / one if one else float("nan")))
    columns = [Column("what"), Column("unit"), *(Column(f"{of}{part}", "", _measured) for of in "AB" for part in ("", " from", " to")),
               Column("B ÷ A", "", _measured)]
    return Table("speeds", "Speed: medians of the steps, and from where to where their middle half reaches", "", columns, rows)


def _measured(value):
    return "not measured" if math.isnan(value) else look.digits(value)


def times(a, b):
    """A row per category that either used; the rows' differences sum to the last row's."""
    one, other = (dict(zip(run.categories, ledgers.time_by_rank(run).mean(axis=0).tolist())) for run in (a, b))
    names = [name for name in dict.fromkeys((*one, *other)) if one.get(name) or other.get(name)]
    rows = [(name, one.get(name, 0.0), other.get(name, 0.0), other.get(name, 0.0) - one.get(name, 0.0)) for name in names]
    whole = sum(one.values()), sum(other.values())
    rows.append(("step", *whole, whole[1] - whole[0]))
    columns = [Column("category"), *(Column(of, "s") for of in ("A", "B", "B − A"))]
    return Table("times", "Where a step's time goes, mean over ranks", "", columns, rows)


def memories(a, b):
    """A row per tier and book of the fullest ranks."""
    columns = [Column("tier"), Column("book"), *(Column(of, "byte", look.byte_text) for of in ("A", "B", "B − A"))]
    one, other = ({peak.tier: dict(zip(run.books, (peak.measured if ledgers.was_measured(run) else peak.predicted).tolist()))
                   for peak in ledgers.fullest_ranks(run)} for run in (a, b))
    rows = []
    for tier in dict.fromkeys((*one, *other)):
        x, y = one.get(tier, {}), other.get(tier, {})
        both = [(book, x.get(book, 0), y.get(book, 0)) for book in dict.fromkeys((*x, *y))]
        rows += [(tier, book, p, q, q - p) for book, p, q in [*both, ("peak", sum(x.values()), sum(y.values()))] if p or q]
    return Table("memories", "Memory at the peak of the fullest rank", "", columns, rows)


def movements(a, b):
    """A row per set of axes and kind of copies: bytes per step of the job, and what was exposed."""
    one, other = ({m.axes: (m.sent, m.exposed) for m in ledgers.moves(run)} | _copies(run) for run in (a, b))
    rows = []
    for name in dict.fromkeys((*one, *other)):
        (sent, exposed), (sent_b, exposed_b) = one.get(name, (0, None)), other.get(name, (0, None))
        rows.append((name, sent, sent_b, exposed, exposed_b))
    columns = [Column("axes, or between tiers"), *(Column(f"{of} moved", "byte", look.byte_text) for of in "AB"),
               *(Column(f"{of} exposed", "s", look.second_text) for of in "AB")]
    return Table("movements", "Moves: bytes a step of all ranks, time exposed a rank and step", "", columns, rows)


def _copies(run):
    """{copies, disk: (bytes, seconds exposed)} of those that carried anything."""
    moved = {queue.queue: queue.moved for queue in ledgers.copies(run)}
    seconds = dict(zip(run.categories, ledgers.time_by_rank(run).mean(axis=0).tolist()))
    return {name: (sum(moved.get(queue, 0) for queue in queues), seconds.get(category, 0.0))
            for name, (queues, category) in ledgers.COPIES.items() if any(queue in moved for queue in queues)}

"""From a trace to numbers: what the stages of a pipeline did in one step, where they idled, and what a schedule's theory says; and a step's memory.

Pure functions of record.Trace. An action is the work of one rank on one microbatch in one phase; what lies between actions is idle: the bubble.
"""
import dataclasses
import re

import numpy

import inputs

LABEL = re.compile(r"([FBWS]) (\S*) ?(\S+?)(~?)(?:@(\d+))?$")  # "F layers.0 matmul@3": part, unit, kind, recomputed, microbatch
PHASES = {"F": "forward", "B": "input gradients", "W": "weight gradients"}
BACKWARD = "backward"  # input and weight gradients interleaved, as in every schedule but zero-bubble


@dataclasses.dataclass(frozen=True)
class Action:
    """Seconds since the step's first event. `phase`: forward, backward, input gradients, weight gradients."""

    phase: str
    microbatch: int
    begin: float
    end: float


def steps(trace):
    """The traced steps, in order."""
    return numpy.unique(trace.step).tolist()


def settled_step(trace):
    """The step that charts show: the second traced one, else the first; None where nothing was traced."""
    found = steps(trace)
    return found[1] if len(found) > 1 else found[0] if found else None


def events_of(trace, step, rank=None):
    """[event] a mask."""
    mask = trace.step == step
    return mask if rank is None else mask & (trace.rank == rank)


def busy_seconds(begin, end):
    """Seconds in which at least one of the stretches [begin, end) was under way."""
    if not len(begin):
        return 0.0
    order = numpy.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    reached = numpy.maximum.accumulate(end)
    before = numpy.concatenate(([begin[0]], reached[:-1]))
    return float(numpy.maximum(0, end - numpy.maximum(begin, before)).sum())


def actions(trace, step, ranks):
    """{rank: its actions, in order} of these ranks."""
    origin = trace.begin[events_of(trace, step)].min()
    parts = [_part(label) for label in trace.ops]
    compute = trace.queues.index("compute")
    return {rank: _merged(trace, numpy.flatnonzero(events_of(trace, step, rank) & (trace.queue == compute)), parts, origin) for rank in ranks}


def _part(label):
    """(part, microbatch) of an op's label; None of what belongs to no microbatch."""
    found = LABEL.match(label)
    return (found[1], int(found[5])) if found and found[5] and found[1] in PHASES else None


def _merged(trace, events, parts, origin):
    done, kinds = [], set()  # kinds: the parts of the last action
    for event in events[numpy.argsort(trace.begin[events], kind="stable")]:
        part = parts[trace.op[event]]
        if part is None:
            continue
        letter, microbatch = part
        begin, end = float(trace.begin[event] - origin), float(trace.end[event] - origin)
        last = done[-1] if done else None
        if last and last.microbatch == microbatch and (letter == "F") == (last.phase == "forward"):
            kinds.add(letter)
            done[-1] = Action(BACKWARD if len(kinds) > 1 else last.phase, microbatch, last.begin, max(last.end, end))
        else:
            kinds = {letter}
            done.append(Action(PHASES[letter], microbatch, begin, end))
    return done


@dataclasses.dataclass(frozen=True)
class Bubble:
    """Of one step's actions. `gaps`: {rank: [(begin, end)]}; `busy`: {rank: seconds}; between `begin` and `end` somebody worked."""

    begin: float
    end: float
    gaps: dict
    busy: dict

    @property
    def fraction(self):
        """Idle time ÷ time of all stages, from the first action to the last."""
        span = (self.end - self.begin) * len(self.busy)
        return 1 - sum(self.busy.values()) / span if span > 0 else 0.0


def bubble(by_rank):
    """The bubbles of actions(...); at least one rank must have worked."""
    every = [action for done in by_rank.values() for action in done]
    begin, end = min(action.begin for action in every), max(action.end for action in every)
    gaps, busy = {}, {}
    for rank, done in by_rank.items():
        edges = [begin, *(edge for action in done for edge in (action.begin, action.end)), end]
        gaps[rank] = [(left, right) for left, right in zip(edges[::2], edges[1::2]) if right > left]
        busy[rank] = sum(action.end - action.begin for action in done)
    return Bubble(begin, end, gaps, busy)


def theory(schedule, stages, microbatches, virtual_stages=1):
    """Idle ÷ step time of equal stages whose backward takes two forwards: (fraction, formula); (None, why) where there is no formula.

    gpipe, 1f1b: Huang et al. 2019, Narayanan et al. 2021, section 2.2; interleaved: likewise; zero-bubble, ZB-H1: Qi et al. 2023, table 2, with
    equal times of forward, input and weight gradients.
    """
    p, m, v = stages, microbatches, virtual_stages
    if p == 1:
        return 0.0, "one stage has no bubble"
    if schedule in ("gpipe", "1f1b"):
        return (p - 1) / (m + p - 1), "(p−1)/(m+p−1)"
    if schedule == "interleaved":
        return (p - 1) / (v * m + p - 1), "(p−1)/(v·m+p−1)"
    if schedule == "zero-bubble" and m >= p:
        return (p - 1) / (3 * m + p - 1), "(p−1)/(3m+p−1)"
    return None, f"no formula for {schedule} with {m} microbatches on {p} stages"


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a run's input lets one expect of its pipeline; `fraction` and `formula` as of theory()."""

    schedule: str
    stages: int
    microbatches: int
    fraction: float
    formula: str


def expected(run):
    """Of a record.Record."""
    settings = inputs.of(run)
    stages = int(run.coordinates[:, 2].max()) + 1
    schedule, microbatches = settings.get("pipeline.schedule", "?"), settings.get("train.gradient_accumulation_steps", 1)
    return Expected(schedule, stages, microbatches, *theory(schedule, stages, microbatches, settings.get("pipeline.virtual_stages", 1)))


# ---- memory over a step --------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class InUse:
    """One rank's tier over a step: seconds since the first change, and [change, book] bytes from there on; `ops`: labels of the op that begins."""

    time: numpy.ndarray
    books: numpy.ndarray
    ops: list

    @property
    def total(self):
        return self.books.sum(axis=1)

    @property
    def peak(self):
        """(bytes, its index) of the first greatest sum."""
        at = int(self.total.argmax())
        return int(self.total[at]), at


def memory_in_use(trace, rank, tier):
    """None where the tier was never in use on that rank, or not traced."""
    rows = numpy.flatnonzero((trace.memory_rank == rank) & (trace.memory_tier == trace.tiers.index(tier)))
    if not len(rows) or not trace.memory_bytes[rows].any():
        return None
    rows = rows[numpy.argsort(trace.memory_time[rows], kind="stable")]
    time = trace.memory_time[rows] - trace.memory_time[rows[0]]
    return InUse(time, trace.memory_bytes[rows], [trace.ops[op] for op in trace.memory_op[rows]])

"""What a sweep's points come to: rates, efficiencies, what ate the loss, what memory was bought with time, which transfers hid.

From points (sweep_points.py) to plain numbers: reads no file and draws nothing, so that every number can be tested against a record made by hand.
The first step of a run, in which pages are touched and caches are cold, counts nowhere, unless there is no other. A point's steps are those
of all its repetitions together.
"""
import collections
import dataclasses
import math

import numpy

import ledgers
import pipeline


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median, the quartiles around it, of how many, and the median of each repetition alone."""

    median: float
    low: float
    high: float
    count: int
    repetitions: list


@dataclasses.dataclass(frozen=True)
class Loss:
    """A point against the base of its series. efficiency = actual ÷ ideal rate; eaten: category → share of the point's rank-seconds that it took
    more (or, negative, less) than at the base, for the same work. The shares sum to 1 − efficiency."""

    efficiency: float
    eaten: dict

    @property
    def total(self):
        return 1 - self.efficiency


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What moved one way in a step, of the mean rank: bytes, seconds under way and seconds that the rank waited, both over the same `steps` steps;
    and `waited`, the seconds that it waited over all warm steps, as other figures tell them."""

    name: str
    bytes: float
    busy: object  # a float; None: nobody measured it
    exposed: float
    waited: float
    steps: int

    @property
    def hidden(self):
        """The share of its time that other work hid, or None where that is not known."""
        return max(0.0, 1 - self.exposed / self.busy) if self.busy else None


def spread(runs, of_step):
    """Spread of of_step(run) [step] over the warm steps of all runs."""
    parts = [numpy.asarray(of_step(run), dtype=float)[ledgers.warm(run)] for run in runs]
    low, median, high = numpy.quantile(numpy.concatenate(parts), [0.25, 0.5, 0.75])
    return Spread(float(median), float(low), float(high), sum(map(len, parts)), [float(numpy.median(part)) for part in parts])


def work_of(points):
    """What the points' rates are counted in: "token" where all train the same model, else "model FLOP", since a larger model's token is more work."""
    per_token = [run.model_flops / run.tokens[ledgers.warm(run)].mean() for point in points for run in point.runs]
    return "token" if max(per_token) <= 1.001 * min(per_token) else "model FLOP"


def work(run, unit):
    """[step] work of each step of the whole job."""
    return run.tokens if unit == "token" else numpy.full(len(run.step), run.model_flops)


def rate(point, unit="token"):
    """Spread of the whole job's work per second."""
    return spread(point.runs, lambda run: work(run, unit) / run.seconds)


def ideal_rate(base, point, unit="token"):
    """The base's median rate, times as many ranks as the point has more."""
    return rate(base, unit).median * point.ranks / base.ranks


def efficiency(base, point, unit="token"):
    """Actual ÷ ideal rate of a point against the base of its series: of its median, lower and upper quartile."""
    actual, ideal = rate(point, unit), ideal_rate(base, point, unit)
    return actual.median / ideal, actual.low / ideal, actual.high / ideal


def step_seconds(point):
    return spread(point.runs, lambda run: run.seconds)


def ledger(point, unit="token"):
    """category → rank-seconds for a unit of work. They sum to ranks ÷ the median rate, and are split as the ledgers of the middle half of the
    steps are: a single step's ledger, that of the median, varies, and the slowest steps would tell of the machine's other users."""
    columns = {}
    order, slowness = [], []
    for index, run in enumerate(point.runs):
        steps = range(len(run.step))[ledgers.warm(run)]
        order += [(index, step) for step in steps]
        slowness += [run.seconds[step] / work(run, unit)[step] for step in steps]
    ranked = [order[i] for i in numpy.argsort(slowness, kind="stable")]
    quarter = len(ranked) // 4
    for index, step in ranked[quarter:len(ranked) - quarter]:
        run = point.runs[index]
        for category, seconds in zip(run.categories, run.time[step].sum(axis=0) / work(run, unit)[step]):
            columns[category] = columns.get(category, 0.0) + float(seconds)
    scale = point.ranks / rate(point, unit).median / sum(columns.values())
    return {category: seconds * scale for category, seconds in columns.items()}


def loss(base, point, unit="token"):
    """A point against the base of its series."""
    before, after = ledger(base, unit), ledger(point, unit)
    whole = point.ranks / rate(point, unit).median
    categories = dict.fromkeys([*before, *after])
    eaten = {category: (after.get(category, 0.0) - before.get(category, 0.0)) / whole for category in categories}
    return Loss(efficiency(base, point, unit)[0], eaten)


def stages(point):
    return int(point.runs[0].coordinates[:, 2].max()) + 1


def bubble(point):
    """(share of the rank-seconds in which stages idle, share in which they wait for messages between stages), of the middle half of the steps, and
    of their time without ledgers.BESIDE_STAGES."""
    parts = ledger(point)
    whole = sum(seconds for category, seconds in parts.items() if category not in ledgers.BESIDE_STAGES)
    return parts.get("pipeline_idle", 0.0) / whole, parts.get("exposed_pp", 0.0) / whole


def scaling_kind(points):
    """strong: all points do the same work in a step; weak: each rank does, at several numbers of ranks; else mixed."""
    totals = [float(numpy.mean([run.model_flops for run in point.runs])) for point in points]
    per_rank = [total / point.ranks for total, point in zip(totals, points)]
    if max(totals) <= 1.01 * min(totals):
        return "strong"
    return "weak" if len({point.ranks for point in points}) > 1 and max(per_rank) <= 1.25 * min(per_rank) else "mixed"


def series(points):
    """The points that differ in ranks alone, as {their common values: points by ranks}; values that follow from the ranks tell nothing apart."""
    follow = following(points)
    free = [key for key in keys(points) if key != "ranks" and key not in follow]
    found = {}
    for point in points:
        found.setdefault(tuple((key, point.values.get(key)) for key in free), []).append(point)
    return {common: sorted(members, key=lambda point: point.ranks) for common, members in found.items()}


def crowd(point):
    """(compute threads, CPUs) of the machine that holds most ranks, where the threads are more; else None."""
    run = point.runs[0]
    threads = max(collections.Counter(run.hosts).values()) * int(run.environment.get("threads", 1))
    cpus = int(run.environment.get("cpus", 0))
    return (threads, cpus) if 0 < cpus < threads else None


def keys(points):
    """The varied keys in the points' order: those of which two points have different values."""
    names = dict.fromkeys(key for point in points for key in point.values)
    return [key for key in names if len({repr(point.values.get(key)) for point in points}) > 1]


def following(points):
    """The varied keys that have one value for each number of ranks, as a batch that grows with them."""
    if len({point.ranks for point in points}) < 2:
        return []
    return [key for key in keys(points) if key != "ranks" and len({(point.ranks, repr(point.values.get(key))) for point in points})
            == len({point.ranks for point in points})]


def matched(points, key):
    """{value of key: the pairs (point with the key's first value, point with this one) that agree in all other varied keys}."""
    others = [other for other in keys(points) if other != key]
    values = list(dict.fromkeys(point.values.get(key) for point in points))

    def rest(point):
        return tuple(repr(point.values.get(other)) for other in others)

    first = {rest(point): point for point in points if point.values.get(key) == values[0]}
    return {value: [(first[rest(point)], point) for point in points if point.values.get(key) == value and rest(point) in first] for value in values}


def agreement(points):
    """(step, count, greatest relative difference of losses) of the points, the most of them, whose data was the same at the last step that all
    points did and whose losses are numbers."""
    runs = [point.runs[0] for point in points]
    step = min(int(run.step[-1]) for run in runs)
    losses = {}
    for run in runs:
        for row in numpy.flatnonzero(run.step == step):
            if math.isfinite(run.loss[row]):
                losses.setdefault(int(run.data_hash[row]), []).append(float(run.loss[row]))
    most = max(losses.values(), key=len, default=[0.0])
    return step, len(most), (max(most) - min(most)) / (max(map(abs, most)) or 1.0)


def peaks(point):
    """{tier: the greatest bytes in use of any rank}, as measured."""
    tiers = point.runs[0].tiers
    return {tier: max(int(run.measured_peak[:, run.tiers.index(tier)].sum(axis=1).max()) for run in point.runs) for tier in tiers}


def busy(trace, queues, steps):
    """Seconds per step in which at least one op of these queues was under way, of the mean rank; `steps`: the traced steps to count."""
    wanted = [trace.queues.index(name) for name in queues if name in trace.queues]
    chosen = numpy.isin(trace.queue, wanted) & numpy.isin(trace.step, steps)
    ranks = numpy.unique(trace.rank)
    total = sum(pipeline.busy_seconds(trace.begin[chosen & (trace.rank == rank)], trace.end[chosen & (trace.rank == rank)]) for rank in ranks)
    return total / (len(ranks) * len(steps))


def transfers(point):
    """What moved in a step: along each set of axes, between device and host, and to and from disk. Copies are told of the first repetition: over its
    traced steps, and without a trace nobody knows how long they were under way. What ranks `waited` is of all repetitions and warm steps."""
    found = []
    counted = sum(len(run.step[ledgers.warm(run)]) for run in point.runs)
    for axis in point.runs[0].wire_axes:
        at = point.runs[0].wire_axes.index(axis)
        means = [numpy.mean([getattr(run, name)[ledgers.warm(run), :, at].mean() for run in point.runs]) for name in ("wire_busy", "wire_exposed")]
        found.append(Transfer(axis, float(point.runs[0].wire_sent[:, at].mean()), float(means[0]), float(means[1]),
                              float(means[1]), counted))
    for name, (queues, category) in ledgers.COPIES.items():
        run = point.runs[0]
        moved = sum(float(run.copies_moved[:, run.copy_queues.index(queue)].mean()) for queue in queues)
        if moved == 0:
            continue
        steps = run.step[ledgers.warm(run)]
        if point.trace is not None:
            steps = numpy.intersect1d(steps, point.trace.step)
        known = point.trace is not None and len(steps) > 0
        rows = numpy.isin(run.step, steps)
        waited = float(numpy.concatenate([each.seconds_of(category)[ledgers.warm(each)] for each in point.runs]).mean())
        exposed = float(run.seconds_of(category)[rows].mean()) if known else waited
        found.append(Transfer(name, moved, busy(point.trace, queues, steps) if known else None, exposed, waited, len(steps) if known else counted))
    return [transfer for transfer in found if transfer.bytes > 0]

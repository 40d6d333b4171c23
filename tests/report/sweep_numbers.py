"""The numbers of sweeps, of records made by hand: exact expectations of what scaling.py and sweep_points.py compute."""
import dataclasses
import pathlib
import sys
import tempfile

import hand_made  # first: it finds postproc/, or skips
import numpy

import record
import scaling
import sweep_choices
import sweep_points

FOLDER = tempfile.TemporaryDirectory(prefix="sweep-numbers-")
HERE = pathlib.Path(FOLDER.name)


def made(seconds, ranks=1, tokens=1000, split=None, losses=(), flops=6e6, device=(100,), threads=1, cpus=8):
    """A record: seconds [step] of every rank, its time split by `split` {category: share}, by default all compute; nothing moves."""
    data = hand_made.tables(len(seconds), [(rank, 0, 0, 0) for rank in range(ranks)], ("dp",), evaluations=0)
    seconds = numpy.array(seconds, dtype=float)
    shares = numpy.array([(split or {"compute": 1.0}).get(category, 0.0) for category in hand_made.CATEGORIES])
    data["steps/seconds"], data["steps/tokens"] = seconds, numpy.full(len(seconds), tokens)
    data["time/seconds"] = seconds[:, None, None] * shares * numpy.ones((1, ranks, 1))
    if losses:
        data["steps/loss"] = numpy.array(losses, dtype=float)
    data["memory/measured_peak"] = numpy.zeros((ranks, 3, 5), dtype=int)
    data["memory/measured_peak"][:, 0, 0] = numpy.resize(device, ranks)
    data["flops/model"] = numpy.float64(flops)
    for name in ("sent", "busy", "exposed"):
        data[f"wire/{name}"] = 0 * data[f"wire/{name}"]
    run = record.load(hand_made.write(HERE / "run.h5", data))
    return dataclasses.replace(run, environment={"threads": str(threads), "cpus": str(cpus)})


def point(name, *runs, trace=None, **values):
    return sweep_points.Point(name, name, {"ranks": runs[0].ranks, **values}, list(runs), trace)


def near(found, wanted):
    assert abs(found - wanted) <= 1e-12 * max(1, abs(wanted)), f"{found}, expected {wanted}"


def check_rates():
    """The first step never counts, unless it is alone; repetitions are one population, and each has its own median."""
    one = point("p", made([9, 1, 2, 4]))  # 1000, 500 and 250 tokens a second
    rate = scaling.rate(one)
    assert (rate.median, rate.low, rate.high, rate.count, rate.repetitions) == (500, 375, 750, 3, [500]), rate
    two = point("p", made([9, 1, 2]), made([9, 4, 5]))
    rate = scaling.rate(two)  # 1000, 500, 250, 200
    assert (rate.median, rate.count, rate.repetitions) == (375, 4, [750, 225]), rate
    assert scaling.rate(point("p", made([8]))).median == 125
    assert scaling.step_seconds(two).median == 3


def check_loss_adds_up():
    """Base: 1 rank, 2 s for 1000 tokens. 4 ranks: 1 s, so efficiency 1/2; of each rank-second 0.55 − 0.45 is compute more, and so on."""
    base = point("1", made([9, 2, 2, 2], split={"compute": 0.9, "other": 0.1}))
    wide = point("4", made([9, 1, 1, 1], ranks=4, split={"compute": 0.55, "exposed_dp": 0.4, "other": 0.05}))
    found = scaling.loss(base, wide)
    near(found.efficiency, 0.5)
    for category, share in {"compute": 0.1, "exposed_dp": 0.4, "other": 0.0, "exposed_copy": 0.0, "exposed_disk": 0.0}.items():
        near(found.eaten[category], share)
    near(sum(found.eaten.values()), found.total)
    near(sum(scaling.ledger(wide).values()), 4 / 1000)
    near(scaling.loss(base, base).total, 0)


def check_loss_of_unsteady_steps():
    """It adds up with medians too, whatever the other steps are, and slow steps (here all disk) do not tell of the others."""
    base = point("1", made([9, 2, 2, 2, 2.5, 3], split={"compute": 1.0}))
    run = made([9, 1.0, 1.1, 1.2, 1.3, 50, 1.4, 1.5, 1.15], ranks=2, split={"compute": 0.7, "exposed_dp": 0.3})
    run.time[5] = [50.0 if category == "exposed_disk" else 0.0 for category in run.categories]
    found = scaling.loss(base, point("2", run))
    near(found.efficiency, scaling.rate(point("2", run)).median / 2 / 500)
    near(sum(found.eaten.values()), found.total)
    assert found.eaten["exposed_disk"] == 0
    faster = scaling.loss(base, point("1 again", made([9, 1, 1])))
    near(faster.efficiency, 2)
    near(sum(faster.eaten.values()), -1)


def check_kinds():
    strong = [point("1", made([1, 1], flops=8)), point("2", made([1, 1], ranks=2, flops=8))]
    weak = [point("1", made([1, 1], flops=8)), point("2", made([1, 1], ranks=2, flops=16))]
    neither = [point("1", made([1, 1], flops=8)), point("2", made([1, 1], ranks=2, flops=80))]
    assert [scaling.scaling_kind(kind) for kind in (strong, weak, neither)] == ["strong", "weak", "mixed"]
    assert scaling.scaling_kind([point("small batch", made([1, 1], flops=8)), point("larger", made([1, 1], flops=9))]) == "mixed"
    grown = [point("1", made([1, 1], flops=8)), point("2", made([1, 1], ranks=2, tokens=2000, flops=16))]
    assert scaling.work_of(grown) == "token"
    deeper = [point("1", made([1, 1], flops=8)), point("2", made([1, 1], ranks=2, flops=16))]
    assert scaling.rate(deeper[1], scaling.work_of(deeper)).median == 16


def check_series():
    """Values that follow from the ranks make no series of their own; others do, and each begins with its fewest ranks."""
    grown = [point("4", made([1, 1], ranks=4), batch=16), point("1", made([1, 1]), batch=4)]
    assert scaling.following(grown) == ["batch"]
    assert {common: [p.ranks for p in members] for common, members in scaling.series(grown).items()} == {(): [1, 4]}
    crossed = [point(f"{n} {z}", made([1, 1], ranks=n), zero=z) for z in (0, 2) for n in (2, 1)]
    assert {common: [p.name for p in members] for common, members in scaling.series(crossed).items()} == {
        (("zero", 0),): ["1 0", "2 0"], (("zero", 2),): ["1 2", "2 2"]}
    assert scaling.keys(crossed) == ["ranks", "zero"] and scaling.keys(crossed[:2]) == ["ranks"]


def check_matched():
    """Pairs agree in all but the key; what has no partner is in none."""
    cells = {("none", 1): 1.0, ("cpu", 1): 2.0, ("none", 4): 1.0, ("cpu", 4): 1.25, ("nvme", 4): 4.0, ("nvme", 8): 1.0}
    found = [point(f"{o}{a}", made([9, s]), offload=o, accumulation=a) for (o, a), s in cells.items()]
    pairs = {value: [f"{first.name} {other.name}" for first, other in both] for value, both in scaling.matched(found, "offload").items()}
    assert pairs == {"none": ["none1 none1", "none4 none4"], "cpu": ["none1 cpu1", "none4 cpu4"], "nvme": ["none4 nvme4"]}, pairs


def check_memory():
    assert scaling.peaks(point("p", made([1], ranks=3, device=(5, 70, 6)), made([1], ranks=3, device=(80,)))) == {"device": 80, "host": 0, "nvme": 0}


def check_transfers():
    """Hidden is what of the time under way nobody waited for; overlapping copies count once, untraced and first steps not at all."""
    run = made([9, 10, 10, 10], ranks=2, split={"compute": 0.9, "exposed_copy": 0.1})
    run.time[3] = [{"compute": 3.0, "exposed_copy": 7.0}.get(category, 0.0) for category in run.categories]  # step 4 is not traced
    run.copies_moved[:] = [300, 100, 0]
    run.wire_sent[:] = 50
    run.wire_busy[:], run.wire_exposed[:] = 4, 1
    trace = record.Trace(
        queues=["compute", "copy_in", "copy_out"], ops=["move"], step=numpy.array([1, 2, 2, 2, 3, 3]), rank=numpy.array([0, 0, 0, 0, 1, 1]),
        queue=numpy.array([1, 1, 2, 0, 1, 1]), op=numpy.zeros(6, dtype=int), begin=numpy.array([0., 10, 12, 10, 20, 25]),
        end=numpy.array([9., 14, 15, 20, 22, 26]), tiers=[], books=[], memory_rank=[], memory_tier=[], memory_op=[], memory_time=[], memory_bytes=[])
    assert scaling.busy(trace, ("copy_in", "copy_out"), [2, 3]) == (5 + 2 + 1) / (2 * 2)  # rank-seconds ÷ (ranks × steps)
    wire, copies = scaling.transfers(point("p", run, trace=trace))
    assert (wire.name, wire.bytes, wire.busy, wire.exposed, wire.hidden) == ("dp", 50, 4, 1, 0.75)
    assert (copies.name, copies.bytes, copies.busy, copies.exposed, copies.hidden) == ("copies", 400, 2, 1, 0.5)
    assert (wire.steps, wire.waited, copies.steps, copies.waited) == (3, 1, 2, 3)  # what waited of all steps is what other figures tell
    untraced = scaling.transfers(point("p", run))[1]
    assert (untraced.busy, untraced.exposed, untraced.hidden, untraced.steps) == (None, 3, None, 3)
    assert scaling.transfers(point("p", made([1, 1]))) == []  # nothing moved


def check_bubble():
    """Of the step without what is no stage's: a save and waiting for data."""
    run = made([9, 10, 10], split={"compute": 0.3, "pipeline_idle": 0.1, "exposed_pp": 0.1, "checkpoint": 0.4, "data": 0.1})
    idle, message = scaling.bubble(point("p", run))
    near(idle, 0.2)
    near(message, 0.2)


def check_words_of_transfers():
    """All that was waited for longer than it took is named, no cause is claimed, and steps that differ are told of."""
    one = point("p", made([1, 1]))
    found = [(one, scaling.Transfer("dp", 1, 2.0, 3.0, 3.0, 9)), (one, scaling.Transfer("copies", 1, 4.0, 5.0, 6.0, 2)),
             (one, scaling.Transfer("disk", 1, 8.0, 7.0, 70.0, 2))]
    said = sweep_choices._hiding_caption(found, 3)
    for words in ("longest, over all steps: disk of p, 70 s.", "waited 7 s for the disk of p in the traced steps, and 70 s in all",
                  "longer than under way: dp of p, copies of p. They began late"):
        assert words in said, said


def check_agreement():
    """Losses are compared where the data is the same, at the last step of all."""
    found = [point("a", made([1, 1, 1], losses=(5, 4, 3.0))), point("b", made([1, 1], losses=(5, 4.5))), point("c", made([1, 1], losses=(5, 4)))]
    assert scaling.agreement(found) == (2, 3, 0.5 / 4.5)
    found[1].runs[0].data_hash[:] = 77
    assert scaling.agreement(found) == (2, 2, 0)


def check_crowding():
    assert scaling.crowd(point("p", made([1], ranks=4, threads=2, cpus=8))) is None
    assert scaling.crowd(point("p", made([1], ranks=4, threads=2, cpus=4))) == (8, 4)


sys.exit(hand_made.run_checks([check for name, check in list(globals().items()) if name.startswith("check_")]))

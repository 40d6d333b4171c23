"""The figures' numbers, against a record and a trace made by hand: exact, for their sources are halves and whole numbers."""
import dataclasses
import math
import pathlib
import sys
import tempfile

import hand_made  # first: it finds postproc/, or skips
import numpy
from matplotlib.colors import to_rgb

import comparison
import inputs
import ledgers
import look
import pipeline
import record
import run_memory
import run_moves
import run_progress
import run_time
import run_trace

FOLDER = tempfile.TemporaryDirectory(prefix="figures-")
HERE = pathlib.Path(FOLDER.name)
RUN = record.load(hand_made.write(HERE / "run.h5"))
TRACE = record.load_trace(hand_made.write_trace(HERE / "trace.h5"))


def equal(found, wanted):
    assert found == wanted, f"{found}, wanted {wanted}"


def says(figure, *words):
    for word in words:
        assert word in figure.caption, f"‘{word}’ is not in: {figure.caption}"


def loss_of_training_and_held_out():
    figure = run_progress.loss([RUN])
    equal(figure.table.rows, [(1, "training", 5.5), (2, "training", 5.0), (3, "training", 4.5), (2, "held out", 5.25)])
    says(figure, "from 5.5000 at step 1 to 4.5000 at step 3", "Held out it is 5.2500 after step 2, +0.0000 against the mean of the 2 training steps")


def losses_that_are_not_finite():
    data = hand_made.tables()
    data["steps/loss"] = numpy.array([5.0, math.nan, math.inf])
    figure = run_progress.loss([record.load(hand_made.write(HERE / "nan.h5", data))])
    says(figure, "from 5.0000 at step 1 to 5.0000 at step 1", "2 steps without a finite loss, the first step 2")
    data["steps/loss"] = numpy.full(3, math.nan)
    says(run_progress.loss([record.load(hand_made.write(HERE / "nan.h5", data))]), "No loss is finite: 3 steps, the first is step 1")


def gradients_and_learning_rate():
    figure = run_progress.gradients([RUN])
    equal(figure.table.rows[1], (2, 1.0, 1.0, 2e-3, 1.0, 0.0))
    says(figure, "2 at most, at step 1", "1 of 3 steps were clipped", "0.003 at most, first at step 3")


def speed_and_mfu():
    figure = run_progress.speed(RUN, peak_of_rank=1e11)
    equal(figure.table.rows[0], (1, 20.0, 512, 25.6, 5e10, 1e11, 0.125))
    equal(figure.table.rows[2], (3, 10.0, 512, 51.2, 1e11, 2e11, 0.25))
    says(figure, "51.2 tokens/s by the median step", "100 Gflop/s", "25.0 % of a peak of 400 Gflop/s (MFU)")
    says(run_progress.speed(RUN), "MFU is n/a")


def time_by_rank():
    figure = run_time.by_rank(RUN)
    rows = figure.table.rows
    equal(rows[0], [0, 0, 0, 0, 0, 4.0, 1.0, 0.0, 1.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    equal(rows[3][:6], [3, 0, 1, 1, 0, 6.0])
    says(figure, "A step takes 10 s (mean of 2 steps, without the first)", "60.0 % of all rank-seconds is arithmetic",
         "pipeline_idle, idle while a neighbouring stage still computes: 30.0 %, from 2 s on rank 2 to 4 s on rank 0")
    equal(ledgers.shares(RUN)["compute"], 0.5)


def time_by_step():
    figure = run_time.by_step(RUN)
    equal([sum(row[1:]) for row in figure.table.rows], [20.0, 10.0, 10.0])
    says(figure, "Means over 4 ranks", "median step takes 10 s (of 2 steps, the first left out)", "step 1, 20 s: compute took 5 s more",
         "first step allocates")


def bars_of_many_rows_are_means():
    spans, means = ledgers.binned(numpy.arange(10.0).reshape(10, 1), 4)
    equal(spans, [(0, 1), (2, 4), (5, 6), (7, 9)])
    equal(means[:, 0].tolist(), [0.5, 3.0, 5.5, 8.0])
    equal(ledgers.binned(numpy.zeros((0, 2)), 4)[0], [])


def bubble_and_theory():
    figure = run_time.bubble(RUN)
    equal(figure.table.rows, [[0, 0.4, 0.0, 4.0, 0.2], [1, 0.2, 0.0, 6.0, 0.2]])
    says(figure, "1f1b, 2 stages, 4 microbatches: stages idle for 30.0 % of the step", "by (p−1)/(m+p−1)", "for 20.0 %",
         "compute for 4 s to 6 s", "alone idle 16.7 %")
    time = RUN.time.copy()
    time[:, :, RUN.categories.index("checkpoint")] += 90  # a save in each step is no stage's idling, nor its work
    saving = run_time.bubble(dataclasses.replace(RUN, time=time))
    equal(saving.table.rows, figure.table.rows)
    says(saving, "stages idle for 30.0 % of the step", "Saves and waiting for data, 90.0 % of the whole step, are left out")
    equal(pipeline.theory("gpipe", 4, 8), (3 / 11, "(p−1)/(m+p−1)"))
    equal(pipeline.theory("interleaved", 4, 8, 2)[0], 3 / 19)
    equal(pipeline.theory("zero-bubble", 2, 4)[0], 1 / 13)
    equal(pipeline.theory("zero-bubble", 8, 4)[0], None)
    equal(pipeline.theory("1f1b", 1, 4)[0], 0.0)


def actions_of_the_pipeline():
    by_rank = pipeline.actions(TRACE, 2, [0, 2])
    equal([(a.phase, a.microbatch, a.begin, a.end) for a in by_rank[2]],
          [("forward", 0, 1, 2), ("backward", 0, 2, 4), ("forward", 1, 4, 5), ("input gradients", 1, 5, 7)])
    equal([(a.phase, a.microbatch, a.begin, a.end) for a in by_rank[0]],
          [("forward", 0, 0, 1), ("forward", 1, 1, 2), ("input gradients", 0, 4, 6), ("input gradients", 1, 7, 9)])
    bubble = pipeline.bubble(by_rank)
    equal(bubble.gaps, {0: [(2, 4), (6, 7)], 2: [(0, 1), (7, 9)]})
    equal((bubble.busy, bubble.fraction), ({0: 6.0, 2: 6.0}, 1 - 12 / 18))
    figure = run_trace.gantt(RUN, TRACE)
    says(figure, "9 s, the stages shown are idle for 33.3 % of their time; equal stages would be for 20.0 %",
         "All stages are at their microbatches for 6 s")
    equal(figure.table.rows[0], [0, 0, "forward", 0, 0.0, 1.0])


def queues_over_a_step():
    figure = run_trace.queues(RUN, TRACE)
    equal(figure.table.rows, [["compute", 6, 7.0, 0.7], ["tp", 1, 1.0, 0.1]])
    equal(pipeline.busy_seconds(numpy.array([0.0, 0.5, 3]), numpy.array([2.0, 1.0, 4])), 3.0)
    equal(pipeline.busy_seconds(numpy.zeros(0), numpy.zeros(0)), 0.0)


def memory_books():
    figure = run_memory.books(RUN)
    equal(figure.table.rows[3], ["device", 3, "activations", 912, 912])
    says(figure, "device tier peaks at 1.5 KiB on rank 3, 59.4 % of it activations", "on 4 of 4 ranks: as they should be")
    data = hand_made.tables()
    data["memory/measured_peak"] = data["memory/predicted_peak"].copy()
    data["memory/measured_peak"][0, 0, 0] += 8
    says(run_memory.books(record.load(hand_made.write(HERE / "other.h5", data))), "on 3 of 4 ranks, and should be on all")
    figure = run_memory.by_rank(RUN)
    says(figure, "device: 1 KiB on rank 0 to 1.5 KiB on rank 3")
    equal(figure.table.rows, [[rank, "device", 100, 200, 300, 400 + 512 * (rank == 3), 24] for rank in range(4)])
    equal(run_memory.process(RUN).rows[0], [0, "alpha", 4096, 2048, 0, 100, 1948])


def memory_over_a_step():
    figure = run_memory.over_step(RUN, TRACE)
    says(figure, "device, rank 3: the peak of 1.5 KiB stands 2 s into the step, at ‘F layers.0 matmul@1’; at the step's begin 400 B are in use")
    equal(figure.table.rows[1], ["device", 3, 2.0, "F layers.0 matmul@1", 100, 200, 300, 912, 24])
    equal(len(figure.table.rows), 3)  # a tier that is never in use is not drawn


def moves_between_ranks():
    figure = run_moves.between_ranks(RUN)
    equal(figure.table.rows, [["tp", 2.0, 1.0, 1.0, 0.5, 4000, 4000], ["pp", 2.0, 1.0, 1.0, 0.5, 8000, 8000]])
    says(figure, "tp: 2 s under way a step, 50.0 % of it hidden", "1 s, 10.0 % of a step", "arithmetic kept 75.0 % of its rate",
         "are the bytes predicted")
    assert run_moves.between_tiers(RUN) is None
    late = dataclasses.replace(RUN, wire_exposed=RUN.wire_busy * [2.0, 0.5])
    says(run_moves.between_ranks(late), "0.0 % of it hidden", "Waited for longer than under way: tp. They began late")
    noisy = dataclasses.replace(RUN, compute_beside=RUN.compute_alone / 2)  # no faster beside moves than without
    says(run_moves.between_ranks(noisy), "arithmetic kept 100.0 % of its rate")
    brief = dataclasses.replace(RUN, compute_beside=RUN.compute_beside * 1e-4)
    assert "kept" not in run_moves.between_ranks(brief).caption


def copies_between_tiers():
    data = hand_made.tables()
    data["copies/predicted"][:, 0] = data["copies/moved"][:, 0] = 1024
    data["time/seconds"][:, :, 7] = 2.5  # exposed_copy; the step is then of 12.5 s
    figure = run_moves.between_tiers(record.load(hand_made.write(HERE / "copies.h5", data)))
    equal(figure.table.rows, [["copy_in", 4096, 4096, 0.2]])
    says(figure, "4 KiB a step", "waiting for copies takes 20.0 % of a step and for the disk 0.0 %", "(2.5 s of 12.5 s)")


def runs_that_follow_each_other():
    later = hand_made.tables(steps=2)
    later["steps/step"] = numpy.array([3, 4])
    later["steps/loss"] = numpy.array([4.25, 4.0])
    folder = HERE / "chain"
    folder.mkdir()
    hand_made.write(folder / "run.h5")
    hand_made.write(folder / "run-2.h5", later, continues="run.h5", continues_after=2)
    hand_made.write(folder / "run-2026-01-31T12-00-00Z.h5")  # a former run, of no chain
    runs = record.history(folder)
    equal([run.path.name for run in runs], ["run.h5", "run-2.h5"])
    rows = run_progress.loss(runs).table.rows
    equal(rows[:4], [(1, "training", 5.5), (2, "training", 5.0), (3, "training", 4.25), (4, "training", 4.0)])
    equal(runs[0].time.shape, (2, 4, 13))


def what_two_runs_differ_in():
    data = hand_made.tables()
    data["steps/loss"] = numpy.array([5.5, 5.0, math.nextafter(4.5, 5)])
    data["time/seconds"][:, :, 0] += 2
    other = record.load(hand_made.write(HERE / "b.h5", data, config=hand_made.INPUT.replace("zero_stage: 0", "zero_stage: 1")))
    found = comparison.series([RUN], [other], "loss")
    equal((found.first, found.step[found.first]), (2, 3))
    sentence = comparison.sentence("losses", found)
    assert "equal bit for bit up to step 2, different from step 3 on: 4.5 and 4.5000000000000009; at most 2e-16" in sentence, sentence
    assert "in all 3 common steps" in comparison.sentence("norms", comparison.series([RUN], [other], "grad_norm"))
    equal(comparison.data_sentence([RUN], [other]), "data: the same tokens in all common steps")
    equal(comparison.changed_inputs(RUN, other).rows, [("sharding.zero_stage", "0", "1")])
    times = comparison.times(RUN, other).rows
    equal(times[0], ("compute", 5.0, 7.0, 2.0))
    equal(times[-1], ("step", 10.0, 12.0, 2.0))
    equal(sum(row[3] for row in times[:-1]), times[-1][3])
    equal(comparison.memories(RUN, other).rows[-1], ("device", "peak", 1536, 1536, 0))
    equal(comparison.speeds(RUN, other).rows[1], ("time of a step", "s", 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 1.0))
    copying = hand_made.tables()
    for queue, count in enumerate((1000, 24, 8)):
        copying["copies/moved"][:, queue] = count
    copying["time/seconds"][:, :, 7], copying["time/seconds"][:, :, 8] = 2.5, 1.5
    rows = comparison.movements(RUN, record.load(hand_made.write(HERE / "copying.h5", copying))).rows
    equal(rows[2:], [("copies", 0, 4096, None, 2.5), ("disk", 0, 32, None, 1.5)])
    equal(inputs.differences(inputs.flat("a: {b: 1}"), inputs.flat("a: {b: 1, c: null}")), [("a.c", None, None)])


def fills_are_told_apart_in_grey():
    """Of each group that is stacked or drawn together, any two have other hatches, or greys that are far apart."""
    for group in (RUN.categories, [*RUN.books, "packing"], RUN.tiers, ("forward", "backward", "input gradients", "weight gradients", "idle"),
                  ("hidden", "exposed"), ("predicted", "moved")):
        looks = {name: (look.fill(name)["hatch"], numpy.dot(to_rgb(look.fill(name)["facecolor"]), (0.299, 0.587, 0.114))) for name in group}
        alike = [(a, b) for a in looks for b in looks if a < b and looks[a][0] == looks[b][0] and abs(looks[a][1] - looks[b][1]) < 0.2]
        equal(alike, [])
    equal(len({str(look.line(number)["linestyle"]) for number in range(len(look.LINES))}), len(look.LINES))


def labels_at_marks():
    """Labels of marks that crowd cover neither each other nor a mark; those of two marks in one place are one label."""
    canvas, plots = look.axes(height=4.0)
    plot = plots[0, 0]
    plot.set(xlim=(0, 30), ylim=(0, 700))
    look.legend_beside(plot)
    places = [(17.0, 200.0), (17.1, 170.0), (17.8, 130.0), (19.0, 145.0), (20.5, 140.0), (22.0, 160.0), (22.0, 160.0), (23.8, 120.0), (29.5, 690.0)]
    plot.plot(*zip(*places), "o")
    words = ["dp, 256KiB", "dp, 1MiB", "pp, 256KiB", "dp, 4MiB", "dp, 16MiB", "pp, 1", "dp, 0", "dp, 25MiB", "tp, 1MiB"]
    look.label_marks(plot, places, words)
    equal([text.get_text() for text in plot.texts], [*words[:5], "pp, 1 | dp, 0", *words[7:]])
    canvas.draw_without_rendering()
    boxes = [text.get_window_extent() for text in plot.texts]
    marks = plot.transData.transform(places)
    equal([(a, b) for a in range(8) for b in range(a) if boxes[a].overlaps(boxes[b])], [])
    equal([(a, number) for a in range(8) for number, mark in enumerate(marks) if boxes[a].contains(*mark)], [])


def numbers_in_words():
    equal([look.byte_text(n) for n in (0, 1023, 1024, 3 * 2**29)], ["0 B", "1023 B", "1 KiB", "1.5 GiB"])
    equal([look.second_text(s) for s in (0, 2.5e-6, 0.0123, 12.5)], ["0 µs", "2.5 µs", "12.3 ms", "12.5 s"])
    equal([look.byte_unit(n) for n in (0, 1, 1024, 1536 * 1024)], [(1, "B"), (1, "B"), (1024, "KiB"), (1024**2, "MiB")])
    equal([inputs.bytes_of(value) for value in (2048, "64MiB", "3KiB", "auto", None)], [2048, 2**26, 3072, None, None])
    equal([look.digits(value) for value in (122314.0, 0.0123456, 1.0)], ["122300", "0.01235", "1"])
    equal((look.count_text(51.2), look.count_text(2e12), look.percent_text(math.nan)), ("51.2", "2 T", "n/a"))


CHECKS = (loss_of_training_and_held_out, losses_that_are_not_finite, gradients_and_learning_rate, speed_and_mfu, time_by_rank, time_by_step,
          bars_of_many_rows_are_means, bubble_and_theory, actions_of_the_pipeline, queues_over_a_step, memory_books, memory_over_a_step,
          moves_between_ranks, copies_between_tiers, runs_that_follow_each_other, what_two_runs_differ_in,
          fills_are_told_apart_in_grey, labels_at_marks, numbers_in_words)

if __name__ == "__main__":
    sys.exit(hand_made.run_checks(CHECKS))

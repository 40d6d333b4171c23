"""Figures of the time ledger: per rank, per step, and the pipeline's idle time against its schedule's theory."""
import numpy

import ledgers
import look
import pipeline
from page import Column, Figure, Note, Table

MOST_BARS = 64
WORK = ("compute", "optimizer")
MEANING = {
    "exposed_dp": "waiting for gradients or weights of dp", "exposed_tp": "waiting for tp's reductions", "exposed_sp": "waiting for sp's turns",
    "exposed_pp": "waiting for a stage's message on its way", "pipeline_idle": "idle while a neighbouring stage still computes",
    "exposed_copy": "waiting for copies between host and device memory", "exposed_disk": "waiting for the nvme tier", "data": "waiting for data",
    "checkpoint": "saving", "compression": "packing gradients", "other": "the executor itself"}


def by_rank(run):
    seconds, names = ledgers.time_by_rank(run), ledgers.used_categories(run)
    spans, groups = ledgers.binned(seconds, MOST_BARS)
    canvas, plots = look.axes(height=3.4)
    _stack(plots[0, 0], run, groups, names)
    labels = [str(first) if first == last else f"{first}–{last}" for first, last in spans]
    if len(labels) <= 16:
        labels = [f"{label}\n{_coordinate(run, first)}" for label, (first, last) in zip(labels, spans)] if run.ranks == len(spans) else labels
        plots[0, 0].set_xticks(range(len(labels)), labels, fontsize=7)
    else:
        every = -(-len(labels) // 16)
        plots[0, 0].set_xticks(range(0, len(labels), every), labels[::every], fontsize=7)
    plots[0, 0].set_xlabel("rank" if run.ranks == len(spans) else f"ranks, {look.number_of(len(spans), 'group')} of neighbours, means")
    columns = [Column("rank"), *(Column(axis) for axis in ("dp", "tp", "pp", "sp")), *(Column(name, "s") for name in run.categories)]
    rows = [[rank, *run.coordinates[rank].tolist(), *seconds[rank].tolist()] for rank in range(run.ranks)]
    title = "Where a step's time goes, by rank"
    return Figure("time_by_rank", title, _by_rank_caption(run, seconds), canvas, Table("time_by_rank", title, "", columns, rows))


def _coordinate(run, rank):
    extents = run.coordinates.max(axis=0) + 1
    return "\n".join(f"{axis} {at}" for axis, at, extent in zip(("dp", "tp", "pp", "sp"), run.coordinates[rank], extents) if extent > 1)


def _by_rank_caption(run, seconds):
    shares = ledgers.shares(run)
    work = sum(shares.get(name, 0) for name in WORK)
    count = len(run.step) - ledgers.warm(run).start
    text = f"A step takes {look.second_text(seconds.sum(axis=1).mean())} (mean of {look.number_of(count, 'step')}"
    text += ", without the first). " if len(run.step) > 1 else "). "
    text += f"{look.percent_text(work)} of all rank-seconds is arithmetic (compute, optimizer)"
    lost = sorted(((share, name) for name, share in shares.items() if name not in WORK and share > 0), reverse=True)
    if not lost:
        return text + "."
    share, name = lost[0]
    column = seconds[:, run.categories.index(name)]
    text += f"; the most of the rest is {name}, {MEANING.get(name, name)}: {look.percent_text(share)}"
    if run.ranks > 1:
        text += f", from {look.second_text(column.min())} on rank {int(column.argmin())} "
        text += f"to {look.second_text(column.max())} on rank {int(column.argmax())}"
    return text + ". Bars of unlike shares of work show ranks that wait for others."


def by_step(run):
    seconds, names = ledgers.time_by_step(run), ledgers.used_categories(run)
    spans, groups = ledgers.binned(seconds, MOST_BARS)
    canvas, plots = look.axes(height=3.2)
    _stack(plots[0, 0], run, groups, names)
    labels = [str(run.step[first]) if first == last else f"{run.step[first]}–{run.step[last]}" for first, last in spans]
    every = -(-len(labels) // 12)
    plots[0, 0].set_xticks(range(0, len(labels), every), labels[::every], fontsize=7)
    plots[0, 0].set_xlabel("step" if len(spans) == len(run.step) else f"steps, {look.number_of(len(spans), 'group')}, means")
    total = seconds.sum(axis=1)
    slowest = int(total.argmax())
    warm = ledgers.warm(run)
    count = f"{look.number_of(len(total[warm]), 'step')}{', the first left out' if warm.start else ''}"
    text = f"Means over {look.number_of(run.ranks, 'rank')}. The median step takes {look.second_text(float(numpy.median(total[warm])))} "
    text += f"(of {count}), the slowest, step {run.step[slowest]}, {look.second_text(total[slowest])}"
    if len(total) > 1:
        more = seconds[slowest] - numpy.median(seconds[warm], axis=0)
        text += f": {run.categories[int(more.argmax())]} took {look.second_text(more.max())} more there than in the median step"
        text += " (the first step allocates and warms up)." if slowest == 0 else "."
    else:
        text += "."
    columns = [Column("step"), *(Column(name, "s") for name in run.categories)]
    rows = [[int(step), *values] for step, values in zip(run.step, seconds.tolist())]
    title = "Where the time goes, step by step"
    return Figure("time_by_step", title, text, canvas, Table("time_by_step", title, "", columns, rows))


def _stack(plot, run, table, names):
    """Stacked bars of [bar, category] seconds."""
    divisor, unit = look.second_unit(table.sum(axis=1).max())
    bottom = numpy.zeros(len(table))
    for name in names:
        height = table[:, run.categories.index(name)] / divisor
        plot.bar(range(len(table)), height, bottom=bottom, width=0.86, label=name, **look.fill(name))
        bottom += height
    plot.set_ylabel(f"time of a step [{unit}]")
    handles, labels = plot.get_legend_handles_labels()
    plot.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)  # as they are stacked


# ---- the bubble ----------------------------------------------------------------------------------------------------------

def bubble(run):
    """Idle time by stage, as recorded, and the theory's. For runs with more than one stage and a step."""
    expected = pipeline.expected(run)
    stages = expected.stages
    seconds = ledgers.time_by_rank(run)
    whole = _seconds_by_stage(run, seconds, [name for name in run.categories if name not in ledgers.BESIDE_STAGES], stages)
    if not (whole > 0).all():
        return Note("No bubble.", "The time of the steps was not measured: it is 0 on a stage.")
    idle = _seconds_by_stage(run, seconds, ["pipeline_idle"], stages) / whole
    message = _seconds_by_stage(run, seconds, ["exposed_pp"], stages) / whole
    beside = sum(float(seconds[:, run.categories.index(name)].sum()) for name in ledgers.BESIDE_STAGES)
    measured = float(seconds[:, run.categories.index("pipeline_idle")].sum() / (seconds.sum() - beside))
    canvas, plots = look.axes(height=2.8)
    plot = plots[0, 0]
    plot.bar(range(stages), 100 * idle, width=0.7, label="pipeline_idle", **look.fill("pipeline_idle"))
    plot.bar(range(stages), 100 * message, bottom=100 * idle, width=0.7, label="exposed_pp", **look.fill("exposed_pp"))
    if expected.fraction is not None:
        plot.axhline(100 * expected.fraction, color=look.BLACK, linestyle="--", linewidth=1, label=f"theory {expected.formula}")
    plot.set(xlabel="stage (pp coordinate)", ylabel="share of the step [%]", xticks=range(stages))
    look.legend_beside(plot)
    text = f"{expected.schedule}, {stages} stages, {look.number_of(expected.microbatches, 'microbatch', 'microbatches')}: stages idle for "
    text += f"{look.percent_text(measured)} of the step, "
    if expected.fraction is None:
        text += f"{expected.formula}."
    else:
        text += f"and by {expected.formula}, of equal stages and no other work, for {look.percent_text(expected.fraction)}."
    if beside > 0.005 * seconds.sum():
        text += f" Saves and waiting for data, {look.percent_text(beside / seconds.sum())} of the whole step, are left out of these shares."
    work = _seconds_by_stage(run, seconds, ["compute"], stages)
    if work.max() > 0:
        text += f" The stages compute for {look.second_text(work.min())} to {look.second_text(work.max())}: with the longest stage as the beat, "
        text += f"unlike stages alone idle {look.percent_text(1 - work.mean() / work.max())} of the time that it computes."
    columns = [Column("stage"), Column("pipeline_idle", "1"), Column("exposed_pp", "1"), Column("compute", "s"), Column("theory", "1")]
    rows = [[s, float(idle[s]), float(message[s]), float(work[s]), expected.fraction] for s in range(stages)]
    title = "The pipeline's bubble, measured and in theory"
    return Figure("bubble", title, text, canvas, Table("bubble", title, "", columns, rows))


def _seconds_by_stage(run, seconds, names, stages):
    columns = [run.categories.index(name) for name in names]
    return numpy.array([seconds[run.coordinates[:, 2] == stage][:, columns].sum(axis=1).mean() for stage in range(stages)])

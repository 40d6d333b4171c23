"""Figures of a traced step: the pipeline's Gantt chart with its bubbles, and what each queue of one rank did."""
import numpy

import look
import pipeline
from page import Column, Figure, Note, Table

MOST_STAGES = 32
MOST_NUMBERS = 160  # microbatch numbers are written into so many actions, and no more
RASTER = 2000       # events of a row from which on it is drawn as pixels
LEAST_GAP = 0.003   # of the chart's width: what is narrower is no bubble to mark


def shown_ranks(run):
    """[(stage, rank)] of the chart: the first rank of each stage, of many stages some."""
    stages = sorted(set(run.coordinates[:, 2].tolist()))
    chosen = stages if len(stages) <= MOST_STAGES else [stages[i * (len(stages) - 1) // (MOST_STAGES - 1)] for i in range(MOST_STAGES)]
    return [(stage, int(numpy.flatnonzero(run.coordinates[:, 2] == stage)[0])) for stage in chosen]


def gantt(run, trace):
    step = pipeline.settled_step(trace)
    if step is None:
        return Note("No pipeline chart.", "The trace has no event in it.")
    rows = shown_ranks(run)
    by_rank = pipeline.actions(trace, step, [rank for _, rank in rows])
    if not all(by_rank.values()):
        return Note("No pipeline chart.", f"The trace of step {step} has no work on microbatches of every stage.")
    bubble = pipeline.bubble(by_rank)
    if bubble.end == bubble.begin:
        return Note("No pipeline chart.", f"The work on microbatches of step {step} takes no time.")
    divisor, unit = look.second_unit(bubble.end - bubble.begin)
    canvas, plots = look.axes(height=1.0 + 0.42 * len(rows))
    plot = plots[0, 0]
    shown = set()
    numbers = sum(len(done) for done in by_rank.values()) <= MOST_NUMBERS
    for at, (_, rank) in enumerate(rows):
        _draw_actions(plot, at, by_rank[rank], bubble, divisor, shown, numbers)
        wide = [(left, right - left) for left, right in bubble.gaps[rank] if right - left > LEAST_GAP * (bubble.end - bubble.begin)]
        if wide:
            plot.broken_barh([((left - bubble.begin) / divisor, width / divisor) for left, width in wide], (at - 0.4, 0.8),
                             label=None if "idle" in shown else "idle", **look.fill("idle"))
            shown.add("idle")
    plot.set_yticks(range(len(rows)), [f"stage {stage}, rank {rank}" for stage, rank in rows])
    plot.set_ylim(len(rows) - 0.5, -0.5)
    plot.set_xlim(0, (bubble.end - bubble.begin) / divisor)
    plot.set_xlabel(f"time since the first action of step {step} [{unit}]")
    plot.grid(False)
    plot.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False)
    columns = [Column("stage"), Column("rank"), Column("phase"), Column("microbatch"), Column("begin", "s"), Column("end", "s")]
    table = [[stage, rank, a.phase, a.microbatch, a.begin - bubble.begin, a.end - bubble.begin] for stage, rank in rows for a in by_rank[rank]]
    title = "The pipeline in one step, bubbles marked"
    return Figure("pipeline", title, _gantt_caption(run, rows, bubble), canvas, Table("pipeline", title, "", columns, table))


def _draw_actions(plot, at, done, bubble, divisor, shown, numbers):
    for phase in ("forward", "backward", "input gradients", "weight gradients"):
        bars = [((a.begin - bubble.begin) / divisor, (a.end - a.begin) / divisor) for a in done if a.phase == phase]
        if bars:
            plot.broken_barh(bars, (at - 0.4, 0.8), label=None if phase in shown else phase, **look.fill(phase))
            shown.add(phase)
    if numbers:
        for a in done:
            if a.end - a.begin > 0.012 * (bubble.end - bubble.begin):
                plot.text(((a.begin + a.end) / 2 - bubble.begin) / divisor, at, str(a.microbatch), ha="center", va="center", fontsize=6,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def _gantt_caption(run, rows, bubble):
    expected = pipeline.expected(run)
    text = f"{expected.schedule}: numbers are microbatches, hatched stretches are bubbles. From the first action to the last, "
    text += f"{look.second_text(bubble.end - bubble.begin)}, the stages shown are idle for {look.percent_text(bubble.fraction)} of their time"
    known = expected.fraction is not None
    text += f"; equal stages would be for {look.percent_text(expected.fraction)}, by {expected.formula}." if known else f" ({expected.formula})."
    busy = [bubble.busy[rank] for _, rank in rows]
    if max(busy) < 1.02 * min(busy):
        return text + f" All stages are at their microbatches for {look.second_text(max(busy))}, waits for tp and sp included: they are even."
    most, least = rows[int(numpy.argmax(busy))][0], rows[int(numpy.argmin(busy))][0]
    return text + (f" Stage {most} is at its microbatches longest, {look.second_text(max(busy))}, stage {least} least, "
                   f"{look.second_text(min(busy))}, waits for tp and sp included: what the others are shorter is bubble too.")


def queues(run, trace, rank=0):
    """What each queue of one rank did over the charted step."""
    step = pipeline.settled_step(trace)
    mask = pipeline.events_of(trace, step, rank) if step is not None else numpy.zeros(0, bool)
    if not mask.any():
        return Note("No queues over time.", f"The trace has no event of rank {rank}.")
    origin, end = trace.begin[mask].min(), trace.end[mask].max()
    if end == origin:
        return Note("No queues over time.", f"The events of rank {rank} in step {step} take no time.")
    divisor, unit = look.second_unit(end - origin)
    used = [q for q in range(len(trace.queues)) if (mask & (trace.queue == q)).any()]
    canvas, plots = look.axes(height=1.0 + 0.42 * len(used))
    plot, rows, text = plots[0, 0], [], []
    for at, queue in enumerate(used):
        events = mask & (trace.queue == queue)
        begin, until = trace.begin[events] - origin, trace.end[events] - origin
        plot.broken_barh(list(zip(begin / divisor, (until - begin) / divisor)), (at - 0.35, 0.7), facecolor=look.BLUE if queue == 0 else look.ORANGE,
                         linewidth=0, rasterized=bool(events.sum() > RASTER))
        busy = pipeline.busy_seconds(begin, until)
        rows.append([trace.queues[queue], int(events.sum()), busy, busy / float(end - origin)])
        text.append(f"{trace.queues[queue]} {look.percent_text(busy / float(end - origin))}")
    plot.set_yticks(range(len(used)), [trace.queues[queue] for queue in used])
    plot.set_ylim(len(used) - 0.5, -0.5)
    plot.set_xlim(0, (end - origin) / divisor)
    plot.set_xlabel(f"time in step {step} [{unit}]")
    columns = [Column("queue"), Column("events"), Column("busy", "s"), Column("busy share", "1")]
    title = f"The queues of rank {rank} over one step"
    caption = (f"Share of the step's {look.second_text(float(end - origin))} in which each queue was at work: {', '.join(text)}. What runs below "
               "compute while compute has no gap is hidden; a gap of compute above a move is that move exposed. A "
               "receive of pp stands there from its issue on, before its sender sends. trace.py makes a timeline of it.")
    return Figure("queues", title, caption, canvas, Table("queues", title, "", columns, rows))

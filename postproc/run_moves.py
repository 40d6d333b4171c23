"""Figures of what moved: between ranks by axis, hidden and exposed, and between tiers of memory."""
import math

import numpy

import ledgers
import look
from page import Column, Figure, Note, Table


def between_ranks(run):
    moves = [m for m in ledgers.moves(run) if m.busy or m.predicted or m.sent]
    if not moves:
        return Note("Nothing moved between ranks.", "The run is of one rank, or no axis of its grid has anything to exchange.")
    canvas, plots = look.axes(columns=2, height=1.1 + 0.55 * len(moves))
    _times(plots[0, 0], moves)
    _bytes(plots[0, 1], [(m.axes, m.predicted, m.sent) for m in moves], "estimated" if run.wire_estimated else "sent")
    plots[0, 1].set_yticklabels([])
    columns = [Column("axes"), Column("under way", "s"), Column("exposed", "s"), Column("hidden", "s"), Column("hidden share", "1"),
               Column("predicted", "byte"), Column("estimated" if run.wire_estimated else "sent", "byte")]
    rows = [[m.axes, m.busy, m.exposed, m.hidden, None if math.isnan(m.hidden_share) else m.hidden_share, m.predicted, m.sent] for m in moves]
    title = "Moves between ranks: hidden and exposed time, bytes"
    return Figure("moves", title, _moves_caption(run, moves), canvas, Table("moves", title, "", columns, rows))


def _times(plot, moves):
    divisor, unit = look.second_unit(max(m.busy for m in moves))
    at = range(len(moves))
    hidden, exposed = ([getattr(m, name) / divisor for m in moves] for name in ("hidden", "exposed"))
    plot.barh(at, hidden, height=0.6, label="hidden", **look.fill("hidden"))
    plot.barh(at, exposed, left=hidden, height=0.6, label="exposed", **look.fill("exposed"))
    look.lay_down(plot, [m.axes for m in moves])
    plot.set_xlabel(f"time under way, a rank and step [{unit}]")
    plot.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


def _bytes(plot, rows, did):
    divisor, unit = look.byte_unit(max(max(predicted, moved) for _, predicted, moved in rows))
    at = numpy.arange(len(rows))
    for place, column, name in ((-0.18, 1, "predicted"), (0.18, 2, "moved")):
        plot.barh(at + place, [row[column] / divisor for row in rows], height=0.32, label=did if name == "moved" else name, **look.fill(name))
    look.lay_down(plot, [row[0] for row in rows])
    plot.set_xlabel(f"per step, all ranks [{unit}]")
    plot.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


def _moves_caption(run, moves):
    timed = [m for m in moves if m.busy > 0]
    text = " ".join(f"{m.axes}: {look.second_text(m.busy)} under way a step, {look.percent_text(m.hidden_share)} of it hidden behind arithmetic."
                    for m in timed)
    if timed:
        worst = max(timed, key=lambda m: m.exposed)
        step = float(ledgers.time_by_rank(run).sum(axis=1).mean())
        text += f" The most exposed is {worst.axes}: {look.second_text(worst.exposed)}, "
        text += f"{look.percent_text(worst.exposed / step)} of a step." if step > 0 else "of a step whose time was not measured."
    late = [m.axes for m in timed if m.exposed > 1.01 * m.busy]
    if late:
        text += f" {began_late(late)}"
    rate = ledgers.rate_beside(run)
    if not math.isnan(rate):
        text += f" Beside moves arithmetic kept {look.percent_text(rate)} of its rate."
    if not run.wire_sent.any():
        text += " Nothing was counted: these are the plan's bytes."
    elif run.wire_estimated:
        text += " The MPI library's own collectives were used: the bytes sent are a formula's."
    elif all(m.predicted == m.sent for m in moves):
        text += " Bytes sent are the bytes predicted, on every axis."
    else:
        text += " Bytes sent differ from those predicted on " + ", ".join(m.axes for m in moves if m.predicted != m.sent) + "."
    saved = int(run.wire_uncompressed.sum() - run.wire_predicted.sum())
    if saved > 0:
        text += f" Compressed gradients save {look.byte_text(saved)} a step, of {look.byte_text(run.wire_uncompressed.sum())}."
    return text.strip()


def began_late(names):
    """What is to be said of transfers that were waited for longer than they were under way; their bars are as long as the waiting."""
    return (f"Waited for longer than under way: {', '.join(names)}. They began late; the record does not tell whether for other ranks, for another "
            "transfer (a copy for the disk) or for a processor.")


def between_tiers(run):
    """None where no tier but the device's is in use."""
    queues = ledgers.copies(run)
    if not queues:
        return None
    shares = ledgers.shares(run)
    step = float(ledgers.time_by_rank(run).sum(axis=1).mean()) if len(run.step) else 0.0
    waits = {name: shares.get(category, 0.0) for name, (_, category) in ledgers.COPIES.items()}
    canvas, plots = look.axes(columns=2, height=1.1 + 0.55 * len(queues))
    _bytes(plots[0, 0], [(q.queue, q.predicted, q.moved) for q in queues], "moved")
    plot = plots[0, 1]
    categories = {name: category for name, (_, category) in ledgers.COPIES.items()}
    for at, (name, category) in enumerate(categories.items()):
        plot.barh(at, 100 * waits[name], height=0.6, **look.fill(category))
    look.lay_down(plot, list(categories.values()))
    plot.set_xlabel("share of a step [%]")
    plot.set_xlim(left=0, right=max(1.0, 110 * max(waits.values())))
    text = f"{look.byte_text(sum(q.moved for q in queues))} a step move between tiers on all ranks; waiting for copies takes "
    text += f"{look.percent_text(waits['copies'])} of a step and for the disk {look.percent_text(waits['disk'])}"
    text += f" ({look.second_text((waits['copies'] + waits['disk']) * step)} of {look.second_text(step)}): the rest was hidden behind arithmetic."
    columns = [Column("queue"), Column("predicted", "byte"), Column("moved", "byte"), Column("exposed share of a step", "1")]
    rows = [[q.queue, q.predicted, q.moved, waits["disk"] if q.queue == "disk" else waits["copies"]] for q in queues]
    title = "Copies between tiers of memory"
    return Figure("copies", title, text, canvas, Table("copies", title, "", columns, rows))

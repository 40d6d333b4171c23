"""Figures of the memory ledger: five books at the high-water mark, predicted and measured, by tier and by rank; and memory over a traced step."""
import numpy

import inputs
import ledgers
import look
import pipeline
from page import Column, Figure, Note, Table

MOST_BARS = 64


def books(run):
    """The tiers' peaks on their fullest ranks, predicted beside measured."""
    peaks = ledgers.fullest_ranks(run)
    if not peaks:
        return Note("No memory was planned.", "Neither a predicted nor a measured peak is in the record.")
    divisor, unit = look.byte_unit(max(peak.peak for peak in peaks))
    canvas, plots = look.axes(height=0.9 + 0.75 * len(peaks))
    plot = plots[0, 0]
    labels, shown = [], set()
    for peak in peaks:
        for kind, values in (("predicted", peak.predicted), ("measured", peak.measured)):
            left = 0.0
            for book, value in zip(run.books, values / divisor):
                plot.barh(len(labels), value, left=left, height=0.8, label=None if book in shown else book, **look.fill(book))
                shown.add(book)
                left += value
            labels.append(f"{peak.tier}, rank {peak.rank}\n{kind}")
    _limit(plot, run, divisor)
    plot.set_yticks(range(len(labels)), labels)
    plot.invert_yaxis()
    plot.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    plot.grid(False, axis="y")
    plot.set_xlabel(f"memory at the high-water mark [{unit}]")
    look.legend_beside(plot)
    columns = [Column("tier"), Column("fullest rank"), Column("book"), Column("predicted", "byte"), Column("measured", "byte")]
    rows = [[peak.tier, peak.rank, book, int(p), int(m)] for peak in peaks for book, p, m in zip(run.books, peak.predicted, peak.measured)]
    title = "Memory at its peak, by book: predicted and measured"
    return Figure("memory_books", title, _books_caption(run, peaks), canvas, Table("memory_books", title, "", columns, rows))


def _limit(plot, run, divisor):
    limit = inputs.bytes_of(inputs.of(run).get("device.memory_limit"))
    if limit and limit < 4 * divisor * plot.get_xlim()[1]:  # a limit far off, as one derived from the machine is, would crush the bars
        plot.axvline(limit / divisor, color=look.RED, linewidth=1.2, linestyle="--", label="device.memory_limit")


def _books_caption(run, peaks):
    text = ""
    for peak in peaks:
        values = peak.measured if ledgers.was_measured(run) else peak.predicted
        largest = int(values.argmax())
        share = look.percent_text(values[largest] / max(1, values.sum()))
        text += f"The {peak.tier} tier peaks at {look.byte_text(values.sum())} on rank {peak.rank}, {share} of it {run.books[largest]}. "
    if not ledgers.was_measured(run):
        return text + "Nothing was measured: no step was recorded."
    equal = ledgers.equal_ranks(run)
    text += f"Predicted and measured bytes are equal, book by book, on {equal} of {look.number_of(run.ranks, 'rank')}"
    return text + (": as they should be." if equal == run.ranks else ", and should be on all.")


def by_rank(run):
    """Every rank's peak by tier and book; of one rank there is nothing to compare."""
    tiers = [peak.tier for peak in ledgers.fullest_ranks(run)]
    if run.ranks < 2 or not tiers:
        return None
    source = run.measured_peak if ledgers.was_measured(run) else run.predicted_peak
    canvas, plots = look.axes(rows=len(tiers), height=2.4)
    for plot, tier in zip(plots[:, 0], tiers):
        table = source[:, run.tiers.index(tier)]
        spans, groups = ledgers.binned(table, MOST_BARS)
        divisor, unit = look.byte_unit(groups.sum(axis=1).max())
        bottom = numpy.zeros(len(groups))
        for b, book in enumerate(run.books):
            plot.bar(range(len(groups)), groups[:, b] / divisor, bottom=bottom, width=0.86, label=book, **look.fill(book))
            bottom += groups[:, b] / divisor
        every = -(-len(spans) // 16)
        labels = [str(first) if first == last else f"{first}–{last}" for first, last in spans]
        plot.set_xticks(range(0, len(spans), every), labels[::every])
        plot.set_ylabel(f"{tier} peak [{unit}]")
        look.legend_beside(plot)
    plots[-1, 0].set_xlabel("rank")
    text = ""
    for tier in tiers:
        totals = source[:, run.tiers.index(tier)].sum(axis=1)
        least, most = int(totals.argmin()), int(totals.argmax())
        text += f"{tier}: {look.byte_text(totals[least])} on rank {least} to {look.byte_text(totals[most])} on rank {most}. "
    columns = [Column("rank"), Column("tier"), *(Column(book, "byte") for book in run.books)]
    rows = [[rank, tier, *source[rank, run.tiers.index(tier)].tolist()] for rank in range(run.ranks) for tier in tiers]
    title = "Memory at its peak, rank by rank"
    return Figure("memory_by_rank", title, text + "Unequal bars are unequal stages or shards: the fullest decides what fits.", canvas,
                  Table("memory_by_rank", title, "", columns, rows))


def process(run):
    """What the operating system counts beside the ledger."""
    if not run.process_peak.any():
        return None
    columns = [Column("rank"), Column("host"), *(Column(name, "byte", lambda count: look.byte_text(count) if count >= 0 else "not told") for name in
               ("process peak", "reserved on device and host", "in huge pages", "mapped of other ranks", "beside that"))]
    memory = [run.tiers.index("device"), run.tiers.index("host")]
    rest = ledgers.beside_reserved(run)
    rows = [[rank, run.hosts[rank], int(run.process_peak[rank]), int(run.reserved[rank, memory].sum()), _huge(run.huge_pages[rank, memory]),
             int(run.shared[rank]), int(rest[rank])] for rank in range(run.ranks)]
    largest = int(run.process_peak.argmax())
    text = (f"The largest process, rank {largest}, takes {look.byte_text(run.process_peak[largest])} by the operating system's count; "
            f"{look.byte_text(rest[largest])} of it is neither reserved by the run nor mapped of other ranks: MPI, HDF5, oneDNN, the program, "
            "batches read ahead.")
    return Table("memory_process", "Processes, as the operating system sees them", text, columns, rows)


def _huge(pages):
    return int(pages[pages >= 0].sum()) if (pages >= 0).any() else -1


def over_step(run, trace):
    """The device tier, and others in use, of its fullest rank over the traced step: one plot a tier."""
    found = [(peak, in_use) for peak in ledgers.fullest_ranks(run) if (in_use := pipeline.memory_in_use(trace, peak.rank, peak.tier))]
    if not found:
        return Note("No memory over time.", "The trace has no changes of memory in it.")
    canvas, plots = look.axes(rows=len(found), height=2.6)
    text, rows = "", []
    for plot, (peak, in_use) in zip(plots[:, 0], found):
        most, at = in_use.peak
        divisor, unit = look.byte_unit(most)
        second, second_name = look.second_unit(in_use.time[-1])
        stacks = plot.stackplot(in_use.time / second, (in_use.books / divisor).T, labels=trace.books, step="post")
        for area, book in zip(stacks, trace.books):
            area.set(**look.fill(book))
        plot.plot(in_use.time[at] / second, most / divisor, "v", color=look.BLACK, markersize=7, clip_on=False, label="peak")
        plot.axhline(peak.predicted.sum() / divisor, color=look.RED, linestyle="--", linewidth=1, label="predicted peak")
        plot.set(xlabel=f"time in the step [{second_name}]", ylabel=f"{peak.tier}, rank {peak.rank} [{unit}]")
        plot.set_xlim(0, max(in_use.time[-1], 1e-9) / second)
        plot.set_ylim(0, 1.12 * max(most, peak.predicted.sum()) / divisor)
        look.legend_beside(plot)
        text += (f"{peak.tier}, rank {peak.rank}: the peak of {look.byte_text(most)} stands {look.second_text(in_use.time[at])} into the step, at "
                 f"‘{in_use.ops[at]}’; at the step's begin {look.byte_text(in_use.total[0])} are in use. ")
        rows += [[peak.tier, peak.rank, float(t), op, *books] for t, op, books in zip(in_use.time, in_use.ops, in_use.books.tolist())]
    columns = [Column("tier"), Column("rank"), Column("time", "s"), Column("op"), *(Column(book, "byte") for book in trace.books)]
    title = "Memory over one step"
    return Figure("memory_over_step", title, text + "What stays level is state; what rises and falls is activations and buffers.", canvas,
                  Table("memory_over_step", title, "", columns, rows))

#!/usr/bin/env python3
"""Says what changed between two runs: inputs, machine, losses and from which step on, speed, and the ledgers of time, memory and moves.

    compare.py A B [--html FILE.html] [--figures DIR] [--csv DIR]

A and B are runs' directories or records. Exit codes: 0 done; 2 usage, or no such run; 5 a record that is damaged or of another layout, or a page
that cannot be written.
"""
import argparse
import pathlib
import sys

import needs

try:
    import comparison
    import look
    import record
    import run_report
    from page import Column, Figure, Note, Page, Table
except ImportError as error:
    sys.exit(needs.tell("compare.py", __doc__, error))


def sentences(a, b):
    """What the runs say of their steps; each is a line."""
    columns = (("losses", "loss"), ("gradient norms", "grad_norm"), ("learning rates", "learning_rate"))
    return [*(comparison.sentence(name, comparison.series(a, b, column)) for name, column in columns), comparison.data_sentence(a, b)]


def tables(a, b):
    of_steps = [comparison.speeds, comparison.times] if len(a.step) and len(b.step) else []
    every = [comparison.changed_inputs, comparison.changed_environment, *of_steps, comparison.memories, comparison.movements]
    return [of(a, b) for of in every]


def text(names, a, b):
    """All of it as plain text."""
    parts = [f"{letter}  {name}: {run_report.subtitle(runs[-1])}" for letter, name, runs in zip("AB", names, (a, b))]
    parts += ["", *sentences(a, b)]
    for table in tables(a[-1], b[-1]):
        parts += ["", table.title if table.rows else f"{table.title}: nowhere", *_aligned(table)]
    return "\n".join(parts) + "\n"


def _aligned(table):
    if not table.rows:
        return []
    cells = [[column.shown_heading for column in table.columns],
             *([column.shown(cell) for column, cell in zip(table.columns, row)] for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    place = [str.ljust if isinstance(cell, str) else str.rjust for cell in table.rows[0]]
    return ["  " + "  ".join(put(cell, width) for put, cell, width in zip(place, row, widths)).rstrip() for row in cells]


# ---- the page ------------------------------------------------------------------------------------------------------------

def losses(a, b):
    """Both losses, and how far they are apart."""
    found = comparison.series(a, b, "loss")
    if not len(found.step):
        return Note("The runs have no step in common.", "Their losses cannot be set side by side.")
    canvas, plots = look.axes(rows=2, height=2.2, sharex=True)
    every = look.markers_every(len(found.step))
    for number, (name, values) in enumerate((("A", found.a), ("B", found.b))):
        plots[0, 0].plot(found.step, values, label=name, markevery=every, **look.line(number))
    plots[0, 0].set_ylabel("loss [nat per token]")
    plots[0, 0].legend()
    plots[1, 0].plot(found.step, found.relative, markevery=every, **look.line(2))
    if (found.relative > 0).any():
        plots[1, 0].set_yscale("log")
    plots[1, 0].set(xlabel="step", ylabel="|A − B| ÷ |A| [1]")
    look.whole_steps(plots[1, 0])
    columns = [Column("step"), Column("A", "nat"), Column("B", "nat"), Column("|A − B| ÷ |A|", "1")]
    rows = list(zip(found.step.tolist(), found.a.tolist(), found.b.tolist(), found.relative.tolist()))
    caption = comparison.sentence("Losses", found) + ". Steps of equal bits are no point of the lower plot."
    return Figure("losses", "Losses of both", caption, canvas, Table("losses", "Losses of both", "", columns, rows))


def times(a, b):
    """A step of each as a bar."""
    canvas, plots = look.axes(height=2.2)
    plot, table = plots[0, 0], comparison.times(a, b)
    divisor, unit = look.second_unit(max(table.rows[-1][1:3]))
    left = [0.0, 0.0]
    for name, one, other, _ in table.rows[:-1]:
        plot.barh([0, 1], [one / divisor, other / divisor], left=left, height=0.6, label=name, **look.fill(name))
        left = [left[0] + one / divisor, left[1] + other / divisor]
    plot.set_yticks([0, 1], ["A", "B"])
    plot.invert_yaxis()
    plot.set_xlabel(f"time of a step, mean over ranks [{unit}]")
    plot.grid(False, axis="y")
    look.legend_beside(plot)
    name, one, other, more = max(table.rows[:-1], key=lambda row: abs(row[3]))
    whole = table.rows[-1]
    caption = (f"A step of A takes {look.second_text(whole[1])}, of B {look.second_text(whole[2])}. The greatest change is {name}: "
               f"{look.second_text(one)} in A, {look.second_text(other)} in B, {look.second_text(abs(more))} {'more' if more > 0 else 'less'}.")
    return Figure("times_picture", "A step of each, by category", caption, canvas, table)


def page(names, a, b):
    made = Page(f"{names[0]} and {names[1]}", "A: " + run_report.subtitle(a[-1]) + " — B: " + run_report.subtitle(b[-1]))
    made.chapter("What changed", text="A is the first run named, B the second.")
    stepped = len(a[-1].step) and len(b[-1].step)
    made.add(*(Note(line.split(":")[0].capitalize() + ":", line.split(": ", 1)[1] + ".") for line in sentences(a, b)), losses(a, b))
    if stepped:
        made.add(times(a[-1], b[-1]))
    drawn = {table.name for _, table in made.tables()}
    for table in tables(a[-1], b[-1]):
        if table.name not in drawn:
            made.add(table if table.rows else Note(table.title + ":", "nowhere."))
    return made


def main(arguments):
    parser = argparse.ArgumentParser(prog="compare.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=pathlib.Path, metavar="A")
    parser.add_argument("b", type=pathlib.Path, metavar="B")
    for name, metavar in (("--html", "FILE.html"), ("--figures", "DIR"), ("--csv", "DIR")):
        parser.add_argument(name, type=pathlib.Path, metavar=metavar)
    options = parser.parse_args(arguments)
    names = [run_report.name_of(path) for path in (options.a, options.b)]

    def work():
        a, b = record.history(options.a), record.history(options.b)
        print(text(names, a, b), end="")
        if options.html or options.figures or options.csv:
            made = page(names, a, b)
            for place, write in ((options.html, made.write), (options.figures, made.write_figures), (options.csv, made.write_csv)):
                if place:
                    write(place)

    return record.exit_code("compare.py", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How the reports' pictures look: sizes, colours that the colour-blind tell apart, hatches and line styles that are told apart in grey, and numbers
in words. Every picture is begun with `axes`, so that all are alike; what is drawn is told here by name, never by a colour.

Knows matplotlib, no record and no page.
"""
import math

import matplotlib
from matplotlib.figure import Figure as Canvas  # without pyplot: no screen is looked for
from matplotlib.ticker import MaxNLocator

WIDTH = 8.6  # inches; a page shows them at this width

# Okabe and Ito's colours, lighter and darker in turn: neighbours in a stack differ in grey too, and by their hatch in any case.
BLUE, ORANGE, GREEN, YELLOW, SKY, RED, PINK, BLACK, GREY = (
    "#0072b2", "#e69f00", "#009e73", "#f0e442", "#56b4e9", "#d55e00", "#cc79a7", "#000000", "#bbbbbb")
LINES = (("-", "o", BLUE), ("--", "s", RED), (":", "^", GREEN), ("-.", "D", PINK), ((0, (5, 1, 1, 1, 1, 1)), "v", ORANGE), ((0, (1, 1)), "P", BLACK))

# name → colour and hatch. Time categories, books of memory, tiers, axes of the grid and phases of a pipeline.
FILLS = {
    "compute": (BLUE, ""), "optimizer": (SKY, "//"), "exposed_dp": (RED, "||"), "exposed_tp": (ORANGE, "xx"), "exposed_sp": (YELLOW, "\\\\"),
    "exposed_pp": (PINK, ".."), "pipeline_idle": ("#ffffff", "///"), "exposed_copy": (GREEN, "--"), "exposed_disk": ("#006644", "++"),
    "data": ("#8c510a", "oo"), "checkpoint": (BLACK, ""), "compression": ("#7b3294", "**"), "other": (GREY, ""),
    "weights": (BLUE, ""), "gradients": (ORANGE, "\\\\"), "activations": (GREEN, ".."), "buffers": (GREY, "xx"), "packing": ("#ffffff", "--"),
    "device": (BLUE, ""), "host": (ORANGE, "//"), "nvme": (GREEN, "xx"),
    "hidden": (SKY, ""), "exposed": (RED, "///"), "predicted": ("#ffffff", "//"), "moved": (BLUE, ""),
    "forward": (BLUE, ""), "backward": (ORANGE, ""), "input gradients": (ORANGE, ".."),
    "weight gradients": ("#66c2a5", "//"), "idle": ("#ffffff", "////"),
}


def fill(name):
    """The keywords by which matplotlib draws a bar or an area of this name; of a name that is not known, grey."""
    colour, hatch = FILLS.get(name, (GREY, ""))
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "#333333", "linewidth": 0.4}


def line(number):
    """The keywords of the number-th line of a plot: told apart by its style and its markers without any colour."""
    style, marker, colour = LINES[number % len(LINES)]
    return {"linestyle": style, "marker": marker, "color": colour, "markersize": 4, "linewidth": 1.4}


def markers_every(count):
    """So that a line of many points bears about a dozen markers."""
    return max(1, count // 12)


def axes(rows=1, columns=1, height=3.0, **more):
    """A picture of rows × columns plots, `height` inches a row: (canvas, numpy array [rows, columns] of matplotlib's axes)."""
    canvas = Canvas(figsize=(WIDTH, height * rows), layout="constrained")
    plots = canvas.subplots(rows, columns, squeeze=False, **more)
    for plot in plots.flat:
        plot.grid(True, axis="y", color="#dddddd", linewidth=0.6)
        plot.set_axisbelow(True)
        plot.spines[["top", "right"]].set_visible(False)
    return canvas, plots


def lying(labels):
    """A picture of lying bars, one row a label, the first on top: (canvas, matplotlib's axes)."""
    canvas, plots = axes(height=max(1.8, 0.9 + 0.28 * len(labels)))
    lay_down(plots[0, 0], labels, margin=0.6)
    return canvas, plots[0, 0]


def lay_down(plot, labels, margin=0.5):
    """Rows of lying bars, one a label, the first on top."""
    plot.set_yticks(range(len(labels)), labels)
    plot.set_ylim(len(labels) - 1 + margin, -margin)
    plot.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    plot.grid(False, axis="y")


def whole_steps(plot):
    """Ticks at whole numbers alone along x."""
    plot.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def legend_beside(plot, **more):
    """The legend to the right of the plot, where it covers nothing."""
    if plot.get_legend_handles_labels()[0]:
        plot.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False, **more)


# ---- labels at marks -----------------------------------------------------------------------------------------------------

PLOT = (440.0, 230.0)  # points that a plot beside a legend is wide and high, near enough for labels to be kept apart
LETTER, LINE, MARK = 4.1, 9.0, 9.0  # points: a letter's width and a line's height at size 7, a mark


def label_marks(plot, places, texts):
    """Writes a text at each mark; texts of marks that lie on each other share one label, and labels stand where they cover no mark and no other
    label, if there is such a place. The plot's limits must be set, and begin at 0."""
    scale = [extent / limits[1] for extent, limits in zip(PLOT, (plot.get_xlim(), plot.get_ylim()))]
    points = [(x * scale[0], y * scale[1]) for x, y in places]
    taken = [(x - MARK / 2, y - MARK / 2, x + MARK / 2, y + MARK / 2) for x, y in points]
    groups = []  # (index of the first mark, texts)
    for index, text in enumerate(texts):
        near = next((held for first, held in groups if math.dist(points[first], points[index]) < MARK), None)
        if near is None:
            groups.append((index, near := []))
        near.append(text)
    for index, held in groups:
        text = " | ".join(dict.fromkeys(filter(None, held)))
        right, up, box = _free_place(points[index], LETTER * len(text), taken)
        taken.append(box)
        side = "left" if right > 0 else "right"
        plot.annotate(text, places[index], xytext=(right, up), textcoords="offset points", fontsize=7, ha=side, va="center")


def _free_place(point, width, taken):
    """(offset to the right, offset up, box) of a label of that width: the first of some places around the point that is free, else the first."""
    boxes = []
    for up in (0, LINE, -LINE, 2 * LINE, -2 * LINE, 3 * LINE, -3 * LINE):
        for right in (7, -7):
            left, middle = point[0] + right - (width if right < 0 else 0), point[1] + up
            box = (left, middle - LINE / 2, left + width, middle + LINE / 2)
            inside = box[0] > 0 and box[1] > 0 and box[2] < PLOT[0] and box[3] < PLOT[1]
            free = inside and not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
            boxes.append((not free, len(boxes), right, up, box))
    return min(boxes)[2:]


matplotlib.rcParams.update({
    "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8, "legend.handleheight": 1.1,
    "legend.handlelength": 2.4, "hatch.linewidth": 0.5,
    "svg.fonttype": "path", "svg.hashsalt": "quadrille", "pdf.fonttype": 42, "figure.dpi": 100})


# ---- numbers in words ----------------------------------------------------------------------------------------------------

def scaled(value, steps, units):
    """'3.2 MiB' of a number, the steps between units and their names."""
    unit = 0
    while abs(value) >= steps and unit + 1 < len(units):
        value, unit = value / steps, unit + 1
    return f"{value:.4g} {units[unit]}" if unit else f"{value:.6g} {units[0]}"


def byte_text(count):
    return scaled(float(count), 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def byte_unit(most):
    """(divisor, name) of the unit in which an axis up to so many bytes is told."""
    power = min(5, max(0, int(most).bit_length() - 1) // 10)
    return 1024**power, ("B", "KiB", "MiB", "GiB", "TiB", "PiB")[power]


def second_text(seconds):
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if abs(seconds) * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.4g} {unit}"
    return "0 s"


def second_unit(most):
    """(divisor, name) of the unit in which an axis up to so many seconds is told."""
    return (1, "s") if most >= 1 or most == 0 else (1e-3, "ms") if most >= 1e-3 else (1e-6, "µs")


def count_text(value):
    return scaled(float(value), 1000, ("", "k", "M", "G", "T", "P", "E")).strip()


def digits(value):
    """Four digits, without an exponent: 122300, 0.01235."""
    return f"{float(f'{value:.4g}'):.12g}"


def percent_text(share):
    return f"{100 * share:.1f} %" if math.isfinite(share) else "n/a"


def number_of(count, thing, more=""):
    """'1 rank', '4 ranks'; `more` where an s does not do."""
    return f"{count} {thing}" if count == 1 else f"{count} {more or thing + 's'}"

"""Whether a reader knows what the axes of a picture count: each that bears numbers has a label, and the label a unit unless it is a bare count."""
COUNTS = ("step", "steps", "rank", "ranks", "stage")  # first words of labels that need no unit


def complaints(name, canvas):
    """Sentences on the axes of a matplotlib figure."""
    canvas.draw_without_rendering()  # ticks are made as a picture is drawn
    found = []
    for number, plot in enumerate(canvas.axes, 1):
        for which, axis in (("x", plot.xaxis), ("y", plot.yaxis)):
            label, ticks = axis.get_label_text(), [tick.get_text() for tick in axis.get_ticklabels()]
            if label and not label.endswith("]") and label.replace(",", " ").split()[0] not in COUNTS:
                found.append(f"{name}: the {which} axis of plot {number} is ‘{label}’, which has no [unit]")
            if not label and any(_is_number(tick) for tick in ticks):
                found.append(f"{name}: the {which} axis of plot {number} has numbers and no label: {ticks}")
    return found


def of_page(page):
    """Sentences on all figures of a page."""
    return [sentence for name, figure in page.figures() for sentence in complaints(name, figure.canvas)]


def _is_number(text):
    try:
        float(text.replace("−", "-"))
    except ValueError:
        return False
    return True

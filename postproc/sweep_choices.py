"""The chapters of a sweep over choices: what each costs in time and gives in memory, which transfers hid, and each key's effect by itself.

Draws and words what scaling.py computes; reads nothing.
"""
import ledgers
import look
import page
import pipeline
import run_moves
import scaling
import sweep_scaling

MOST_BARS = 40  # in one picture; the tables have all
MOST_NAMED = 6  # points in one sentence


def figures(points, choices, unit):
    """The items that tell what each choice does: all points' rates, where the ranks are the same their ledgers too, and a table for each key."""
    items = [rates(points, unit)]
    if len({point.ranks for point in points}) == 1:
        items.append(sweep_scaling.eaten("eaten", "", points[0], points[1:MOST_BARS], unit))
    return items + [by_key(points, key, unit) for key in choices]


def rates(points, unit):
    """The rate of every point, in the sweep's order."""
    found = [scaling.rate(point, unit) for point in points]
    rows = [[point.name, point.ranks, rate.median, rate.low, rate.high, rate.count, len(rate.repetitions), min(rate.repetitions),
             max(rate.repetitions)] for point, rate in zip(points, found)]
    name = sweep_scaling.RATE[unit]

    def told(value):
        return f"{look.count_text(value)} {name}"

    columns = [page.Column("point"), page.Column("ranks")]
    columns += [page.Column(column, name, told) for column in ("median", "lower quartile", "upper quartile")]
    columns += [page.Column("steps counted"), page.Column("repetitions")]
    columns += [page.Column(column, name, told) for column in ("slowest repetition", "fastest repetition")]
    table = page.Table("rates", "Throughput of each point", "", columns, rows)
    shown = list(zip(points, found))[:MOST_BARS]
    canvas, plot = look.lying([point.short for point, _ in shown])
    for row, (point, rate) in enumerate(shown):
        plot.barh(row, rate.median, height=0.7, xerr=[[rate.median - rate.low], [rate.high - rate.median]], capsize=3, **look.fill("compute"))
    plot.set(xlabel=f"throughput [{name}]")
    plot.xaxis.set_major_formatter(lambda value, _: look.count_text(value))
    return page.Figure("rates", "Throughput of each point", _rates_caption(points, found, name), canvas, table)


def _rates_caption(points, found, name):
    fastest = max(range(len(points)), key=lambda i: found[i].median)
    slowest = min(range(len(points)), key=lambda i: found[i].median)
    factor = found[fastest].median / found[slowest].median
    caption = (f"The fastest is {points[fastest].short} with {look.count_text(found[fastest].median)} {name}, {factor:.2f} × the slowest, "
               f"{points[slowest].short}. Bars are medians over the steps, and the thin lines on them span their middle half: points whose lines "
               "overlap cannot be told apart by these runs.")
    return caption + (f" Drawn are the first {MOST_BARS} of {len(points)} points." if len(points) > MOST_BARS else "")


def time_and_memory(points, unit):
    """Step time against device memory, a mark for each point; a note where all points take the same memory."""
    peaks = [scaling.peaks(point) for point in points]
    devices = [peak["device"] for peak in peaks]
    if min(devices) == 0:
        return page.Note("Time against memory", "Not every point has measured its memory.")
    if max(devices) <= 1.01 * min(devices):
        return page.Note("Time against memory", f"Every point takes {look.byte_text(max(devices))} of device memory, so there is nothing to weigh.")
    per_step = scaling.scaling_kind(points) != "mixed" or unit != "token"
    times = [scaling.step_seconds(point).median if per_step else 1 / scaling.rate(point, unit).median for point in points]
    factor, second = look.second_unit(max(times))
    divisor, byte = look.byte_unit(max(devices))
    canvas, plots = look.axes(height=4.0)
    plot = plots[0, 0]
    marked = scaling.keys(points)[:1]
    groups = {}
    for point, device, time in zip(points, devices, times):
        groups.setdefault(str(point.values.get(marked[0])) if marked else "", []).append((point, device / divisor, time / factor))
    for number, (value, members) in enumerate(groups.items()):
        style = look.line(number) | {"linestyle": "none", "markersize": 7}
        plot.plot([x for _, x, _ in members], [y for _, _, y in members], label=f"{marked[0]} {value}" if marked else None, **style)
    rest = scaling.keys(points)[1:]
    texts = [", ".join(str(point.values.get(key)) for key in rest) for point in points]
    what = "step time" if per_step else f"time per {unit}"
    plot.set(xlabel=f"device memory at its peak, of the fullest rank [{byte}]", ylabel=f"{what} [{second}]", ylim=(0, 1.15 * max(times) / factor))
    plot.set_xlim(0, 1.2 * max(devices) / divisor)
    look.label_marks(plot, [(device / divisor, time / factor) for device, time in zip(devices, times)], texts)
    beside = "\n".join(["at the marks:", *(key.rsplit(".", 1)[-1] for key in rest)]) if rest else None
    look.legend_beside(plot, title=beside, title_fontsize=8, alignment="left")
    fast = min(range(len(points)), key=lambda i: times[i])
    lean = min(range(len(points)), key=lambda i: (devices[i], times[i]))
    caption = f"Lower is faster, further left is leaner. The fastest, {points[fast].short}, takes {look.byte_text(devices[fast])} of device memory"
    if fast == lean:
        caption += " and is also the leanest: no point takes less."
    else:
        caption += (f"; the leanest, {points[lean].short}, {look.byte_text(devices[lean])} ({look.percent_text(devices[lean] / devices[fast])} of "
                    f"that) at {times[lean] / times[fast]:.2f} × the {what}.")
    columns = [page.Column("point"), page.Column(what, "s", look.second_text)]
    columns += [page.Column(f"{tier} peak", "byte", look.byte_text) for tier in peaks[0]]
    columns += [page.Column("process peak", "byte", look.byte_text)]
    process = [max(int(run.process_peak.max()) for run in point.runs) for point in points]
    rows = [[point.name, time, *peak.values(), whole] for point, time, peak, whole in zip(points, times, peaks, process)]
    return page.Figure("memory", "Time against memory", caption, canvas, page.Table("memory", "Time against memory", "", columns, rows))


def bubbles(points):
    """The idle time of stages at every point that has more than one, and what its schedule's theory says. At least one point must."""
    found = [(point, *scaling.bubble(point), pipeline.expected(point.runs[0])) for point in points if scaling.stages(point) > 1]
    drawn = found[:MOST_BARS]
    canvas, plot = look.lying([point.short for point, *_ in drawn])
    for row, (_, idle, message, _) in enumerate(drawn):
        plot.barh(row, 100 * idle, height=0.7, label=None if row else "pipeline_idle", **look.fill("pipeline_idle"))
        plot.barh(row, 100 * message, left=100 * idle, height=0.7, label=None if row else "exposed_pp", **look.fill("exposed_pp"))
    theory = [(100 * expected.fraction, row) for row, (*_, expected) in enumerate(drawn) if expected.fraction is not None]
    if theory:
        plot.plot(*zip(*theory), linestyle="none", marker="D", color=look.BLACK, markersize=5, label="theory")
    plot.set(xlabel="share of the step [%]", xlim=(0, None))
    look.legend_beside(plot)
    columns = [page.Column("point"), page.Column("schedule"), page.Column("stages"), page.Column("microbatches"),
               page.Column("pipeline_idle", "1", look.percent_text), page.Column("exposed_pp", "1", look.percent_text),
               page.Column("theory", "1", look.percent_text), page.Column("formula")]
    rows = [[point.name, expected.schedule, expected.stages, expected.microbatches, idle, message, expected.fraction, expected.formula]
            for point, idle, message, expected in found]
    title = "The pipeline's bubble, measured and in theory"
    return page.Figure("bubbles", title, _bubbles_caption(found, len(drawn)), canvas, page.Table("bubbles", title, "", columns, rows))


def _bubbles_caption(found, drawn):
    least = min(found, key=lambda each: each[1])
    parts = ["Bars are what stages idle of the step without saves and waiting for data, and wait for each other's messages; marks are the "
             f"schedule's theory, of equal stages and no other work. The least idle is {least[0].short}: {look.percent_text(least[1])}."]
    known = [(point, idle, expected) for point, idle, _, expected in found if expected.fraction is not None]
    if known:
        point, idle, expected = max(known, key=lambda each: abs(each[1] - each[2].fraction))
        parts.append(f"Furthest from its theory is {point.short}: {look.percent_text(idle)} where {expected.formula} gives "
                     f"{look.percent_text(expected.fraction)}.")
    if len(known) < len(found):
        parts.append(f"Of {look.number_of(len(found) - len(known), 'point')} there is no formula.")
    return " ".join(parts + ([f"Drawn are the first {drawn} of {len(found)}."] if drawn < len(found) else []))


def hiding(points):
    """What moved in a step and how much of its time other work hid, of every point that moved anything."""
    found = [(point, transfer) for point in points for transfer in scaling.transfers(point)]
    if not found:
        return page.Note("Transfers", "Nothing moved between ranks or tiers.")
    columns = [page.Column("point"), page.Column("transfer"), page.Column("bytes per rank and step", "byte", look.byte_text),
               page.Column("under way", "s", look.second_text), page.Column("exposed", "s", look.second_text),
               page.Column("hidden", "1", look.percent_text), page.Column("steps of these three"),
               page.Column("exposed, all steps", "s", look.second_text)]
    rows = [[point.name, transfer.name, transfer.bytes, transfer.busy, transfer.exposed, transfer.hidden, transfer.steps, transfer.waited]
            for point, transfer in found]
    table = page.Table("transfers", "Transfers, hidden and exposed", "", columns, rows)
    drawn = found[:MOST_BARS]
    longest = max(max(transfer.busy or 0.0, transfer.exposed) for _, transfer in found)
    factor, second = look.second_unit(longest)
    canvas, plot = look.lying([f"{point.short}: {transfer.name}" for point, transfer in drawn])
    labels = set()
    for row, (_, transfer) in enumerate(drawn):
        hidden = max(0.0, (transfer.busy or 0.0) - transfer.exposed)
        for name, left, length in (("exposed", 0.0, transfer.exposed), ("hidden", transfer.exposed, hidden)):
            plot.barh(row, length / factor, left=left / factor, height=0.7, label=None if name in labels else name, **look.fill(name))
            labels.add(name)
        if transfer.busy is None:
            plot.annotate("time under way not known: no trace", (transfer.exposed / factor, row), xytext=(4, 0), textcoords="offset points",
                          fontsize=7, va="center")
    plot.set(xlabel=f"time per step, mean rank [{second}]", xlim=(0, 1.05 * longest / factor or 1))
    look.legend_beside(plot)
    return page.Figure("transfers", "Transfers, hidden and exposed", _hiding_caption(found, len(drawn)), canvas, table)


def _hiding_caption(found, drawn):
    known = [(point, transfer) for point, transfer in found if transfer.hidden is not None]
    parts = ["A bar is the time in which a transfer was under way in a step; its exposed part the ranks only waited for (where they waited for "
             "longer, that is the bar)."]
    traced = [(point, transfer) for point, transfer in known if transfer.name in ledgers.COPIES]
    if traced:
        point, transfer = max(traced, key=lambda pair: abs(pair[1].waited - pair[1].exposed))
        parts.append(f"Bars of copies and disk are of traced steps alone, others of all steps but the first: ranks waited "
                     f"{look.second_text(transfer.exposed)} for the {transfer.name} of {point.short} in the traced steps, and "
                     f"{look.second_text(transfer.waited)} in all.")
    if known:
        best, worst = max(known, key=lambda pair: pair[1].hidden), max(found, key=lambda pair: pair[1].waited)
        parts.append("Nothing was hidden." if best[1].hidden < 0.005 else
                     f"Best hidden: {best[1].name} of {best[0].short}, {look.percent_text(best[1].hidden)} of {look.second_text(best[1].busy)}.")
        parts.append(f"Waited for longest, over all steps: {worst[1].name} of {worst[0].short}, {look.second_text(worst[1].waited)}.")
    late = [f"{transfer.name} of {point.short}" for point, transfer in known if transfer.exposed > 1.01 * transfer.busy]
    if late:
        parts.append(run_moves.began_late(late[:MOST_NAMED] + ["..."] * (len(late) > MOST_NAMED)))
    unknown = sum(transfer.hidden is None for _, transfer in found)
    if unknown:
        parts.append(f"Of {look.number_of(unknown, 'transfer')} only the exposed part is known; how long copies are under way is in traces "
                     "(output.trace=true).")
    if drawn < len(found):
        parts.append(f"Drawn are the first {drawn} of {len(found)}.")
    return " ".join(parts)


def by_key(points, key, unit):
    """The effect of one key by itself: each value against the key's first, over the pairs of points that agree in all else."""
    columns = [page.Column(key), page.Column("points"), page.Column("pairs")]
    columns += [page.Column(name, "1", lambda ratio: f"{ratio:.3f}")
                for name in ("throughput: least ×", "median ×", "most ×", "device memory: median ×")]
    rows = []
    for value, pairs in scaling.matched(points, key).items():
        ratios = sorted(scaling.rate(point, unit).median / scaling.rate(first, unit).median for first, point in pairs)
        memory = sorted(scaling.peaks(point)["device"] / max(1, scaling.peaks(first)["device"]) for first, point in pairs)
        count = sum(point.values.get(key) == value for point in points)
        rows.append([_cell(value), count, len(pairs), *((ratios[0], _middle(ratios), ratios[-1], _middle(memory)) if pairs else [None] * 4)])
    first = rows[0][0]
    best = max((row for row in rows if row[4] is not None), key=lambda row: row[4])
    said = f"best is {best[0]}, with {best[4]:.2f} × the throughput of {first}" if best[0] != first else f"none is faster than {first}"
    caption = f"Each value against {first}, between points that agree in everything else: {said} (median of the pairs)."
    name = f"by-{key.replace('.', '-')}"
    return page.Table(name, f"By {key}", caption, columns, rows)


def _middle(ordered):
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _cell(value):
    return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else str(value)

"""The chapters of a sweep over ranks: throughput and efficiency against the ideal, and which time category ate the loss.

Draws and words what scaling.py computes; reads nothing.
"""
from matplotlib.ticker import LogLocator

import look
import page
import scaling

RATE = {"token": "token/s", "model FLOP": "FLOP/s"}


def scaling_figures(points, unit):
    """The items for points of at least two numbers of ranks: two curves of all series, then each series' ledger."""
    lines = {common: members for common, members in scaling.series(points).items() if len({point.ranks for point in members}) > 1}
    if not lines:
        return [page.Note("No scaling", "No two points differ in their ranks alone, so there is no efficiency to tell.")]
    items = [throughput(lines, unit), efficiency(lines, unit)]
    for number, (common, members) in enumerate(lines.items()):
        items.append(eaten(f"eaten-{number + 1}" if len(lines) > 1 else "eaten", words(common), members[0], members[1:], unit))
    return items


def throughput(lines, unit):
    canvas, plots = look.axes(height=3.6)
    plot = plots[0, 0]
    rows = []
    for number, (common, members) in enumerate(lines.items()):
        rates = [scaling.rate(point, unit) for point in members]
        ideal = [scaling.ideal_rate(members[0], point, unit) for point in members]
        ranks = [point.ranks for point in members]
        plot.plot(ranks, ideal, color="#777777", linewidth=0.9, linestyle=(0, (6, 3)), label="ideal" if number == 0 else None)
        plot.errorbar(ranks, [rate.median for rate in rates], capsize=3, label=words(common) or "measured", **look.line(number),
                      yerr=[[rate.median - rate.low for rate in rates], [rate.high - rate.median for rate in rates]])
        rows += [[point.name, point.ranks, rate.median, rate.low, rate.high, rate.count, len(rate.repetitions), best]
                 for point, rate, best in zip(members, rates, ideal)]
    _ranks_axis(plot, lines)
    plot.set_yscale("log")
    plot.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    plot.yaxis.set_major_formatter(lambda value, _: look.count_text(float(f"{value:.3g}")))
    plot.yaxis.set_minor_formatter(lambda value, _: "")
    plot.set(ylabel=f"throughput [{RATE[unit]}]")
    look.legend_beside(plot)
    kinds = " and ".join(sorted({_kind(scaling.scaling_kind(members)) for members in lines.values()}))
    caption = " ".join([f"{kinds}.", *(_reached(common, members, unit) for common, members in lines.items()),
                        "Dashed: ideal, the base's throughput times the ranks. Bars span the middle half of the steps.", *crowding(lines)])
    columns = [page.Column("point"), page.Column("ranks"), page.Column("median", RATE[unit]), page.Column("lower quartile", RATE[unit]),
               page.Column("upper quartile", RATE[unit]), page.Column("steps counted"), page.Column("repetitions"), page.Column("ideal", RATE[unit])]
    return page.Figure("throughput", "Throughput over ranks", caption, canvas, page.Table("throughput", "Throughput over ranks", "", columns, rows))


def efficiency(lines, unit):
    canvas, plots = look.axes(height=3.0)
    plot = plots[0, 0]
    told = []
    for number, (common, members) in enumerate(lines.items()):
        parts = [scaling.efficiency(members[0], point, unit) for point in members]
        plot.errorbar([point.ranks for point in members], [100 * median for median, _, _ in parts], capsize=3, label=words(common) or "measured",
                      yerr=[[100 * (m - low) for m, low, _ in parts], [100 * (high - m) for m, _, high in parts]], **look.line(number))
        told += zip(members, parts)
    plot.axhline(100, color="#777777", linewidth=0.9, linestyle=(0, (6, 3)), label="ideal")
    _ranks_axis(plot, lines)
    plot.set_ylim(bottom=0)
    plot.set(ylabel="efficiency [%]")
    look.legend_beside(plot)
    worst = min((part[0], point.short) for (point, part) in told)
    caption = (f"Actual ÷ ideal throughput; a level line at 100 % would be perfect. The lowest is {look.percent_text(worst[0])}, of {worst[1]}. "
               f"The base of each line is its point of fewest ranks.")
    columns = [page.Column("point"), page.Column("ranks")] + [page.Column(name, "1") for name in ("efficiency", "lower quartile", "upper quartile")]
    rows = [[point.name, point.ranks, *part] for point, part in told]
    return page.Figure("efficiency", "Efficiency over ranks", caption, canvas, page.Table("efficiency", "Efficiency over ranks", "", columns, rows))


def eaten(name, which, base, points, unit):
    """What each point's rank-seconds went into, against the base's, for the same work; its table says what ate the loss."""
    members = [base, *points]
    ledgers = [scaling.ledger(point, unit) for point in members]
    whole = sum(ledgers[0].values())
    shown = [category for category in dict.fromkeys(category for ledger in ledgers for category in ledger)
             if any(abs(ledger.get(category, 0)) > 0.005 * whole for ledger in ledgers)]
    canvas, plot = look.lying([point.short for point in members])
    for row, ledger in enumerate(ledgers):
        left = 0.0
        for category in shown:
            length = max(0.0, ledger.get(category, 0.0)) / whole
            plot.barh(row, length, left=left, height=0.7, label=category if row == 0 else None, **look.fill(category))
            left += length
    label = "ideal" if len({point.ranks for point in members}) > 1 else "the base"
    plot.axvline(1, color="#000000", linewidth=1.2, linestyle=(0, (6, 3)), label=label)
    plot.set(xlabel=f"rank-seconds per {unit}, of the base's [1]")
    look.legend_beside(plot)
    losses = [scaling.loss(base, point, unit) for point in points]
    title = "What ate the loss" + (f" ({which})" if which else "")
    return page.Figure(name, title, _eaten_caption(base, points, losses), canvas, eaten_table(name, title, base, points, losses, shown))


def eaten_table(name, title, base, points, losses, shown):
    rest = [category for category in dict.fromkeys(category for loss in losses for category in loss.eaten) if category not in shown]
    columns = [page.Column("point"), page.Column("ranks"), page.Column("efficiency", "%", _percent), page.Column("loss", "%", _percent)]
    columns += [page.Column(category, "%", _percent) for category in shown]
    columns += [page.Column("others", "%", _percent)] if rest else []
    rows = [[base.name, base.ranks, 100.0, 0.0, *[0.0 for _ in shown], *([0.0] if rest else [])]]
    for point, loss in zip(points, losses):
        others = [100 * sum(loss.eaten.get(category, 0.0) for category in rest)] if rest else []
        rows.append([point.name, point.ranks, 100 * loss.efficiency, 100 * loss.total, *[100 * loss.eaten.get(category, 0.0) for category in shown],
                     *others])
    return page.Table(name, title, "", columns, rows)


def words(values):
    """'zero_stage 1, tp 2' of pairs of a key and a value."""
    return ", ".join(f"{key.rsplit('.', 1)[-1]} {value}" for key, value in values)


def crowding(lines):
    """A sentence where points run more threads than their machine has CPUs, for there the ideal is out of reach whatever the program does."""
    over = sorted({(point.ranks, *crowd) for members in lines.values() for point in members if (crowd := scaling.crowd(point))})
    if not over:
        return []
    ranks, threads, cpus = over[0]
    return [f"From {ranks} ranks on there are more threads ({threads}) than CPUs ({cpus}) on a machine: beyond that the ideal is out of reach."]


def _eaten_caption(base, points, losses):
    worst, loss = min(zip(points, losses), key=lambda pair: pair[1].efficiency)
    begin = (f"Each bar is the time of all ranks for the same work, split as their ledgers; the base, {base.short}, is 1, and what lies right of the "
             f"dashed line is lost.")
    if loss.total <= 0:
        return f"{begin} Nothing is: the slowest, {worst.short}, has {look.percent_text(loss.efficiency)} of the base's rate per rank."
    greatest = sorted(((share, category) for category, share in loss.eaten.items() if share > 0), reverse=True)[:3]
    parts = ", ".join(f"{category} {look.percent_text(share)}" for share, category in greatest)
    return (f"{begin} At {worst.short} {look.percent_text(loss.total)} of each rank-second is lost; most of it to {parts} "
            f"(the table's columns add up to the loss).")


def _reached(common, members, unit):
    base, last = members[0], members[-1]
    factor = scaling.rate(last, unit).median / scaling.rate(base, unit).median
    which = f"{words(common)}: " if common else ""
    ideal = last.ranks / base.ranks
    return f"{which}{look.number_of(last.ranks, 'rank')} do {factor:.2f} × the work of {base.ranks} in the same time, of an ideal {ideal:.3g} ×."


def _kind(kind):
    return {"strong": "Strong scaling: every point does the same work in a step", "weak": "Weak scaling: every rank has the same work in a step",
            "mixed": "The work of a step differs from point to point, and not with the ranks: compare with care"}[kind]


def _ranks_axis(plot, lines):
    ranks = sorted({point.ranks for members in lines.values() for point in members})
    plot.set_xscale("log", base=2)
    plot.set_xticks(ranks, [str(count) for count in ranks])
    plot.set_xticks([], minor=True)
    plot.set(xlabel="ranks")


def _percent(value):
    return f"{value:.1f} %"

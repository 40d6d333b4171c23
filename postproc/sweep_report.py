"""A report on a sweep's directory, or on several runs side by side: its chapters, in order. Numbers are scaling.py's, pictures sweep_*.py's."""
import look
import page
import scaling
import sweep_choices
import sweep_points
import sweep_scaling


def recognises(path):
    """A sweep's directory."""
    return sweep_points.is_sweep(path)


def title(path):
    return f"Sweep {path.resolve().name}"


def write(report, path, options, prefix=""):
    """Adds the chapters of a sweep to the page. Raises record.RecordError."""
    add_chapters(report, title(path) if prefix else "Overview", sweep_points.load_sweep(path), prefix)


def write_beside(report, paths, prefix=""):
    """Adds the chapters of several runs side by side to the page, with names that begin with `prefix`. Raises record.RecordError."""
    add_chapters(report, "Side by side", sweep_points.of_runs(paths), prefix)


def add_chapters(report, heading, sweep, prefix):
    report.chapter(heading, prefix, _lead(sweep))
    if not sweep.points:
        report.add(page.Note("No numbers", "No point has finished yet."))
    else:
        report.add(overview(sweep.points))
    report.add(*_without_records(sweep))
    if len(sweep.points) < 2:
        return
    unit = scaling.work_of(sweep.points)
    choices = [key for key in scaling.keys(sweep.points) if key != "ranks"]
    if len({point.ranks for point in sweep.points}) > 1:
        report.chapter("Scaling", prefix)
        report.add(*sweep_scaling.scaling_figures(sweep.points, unit))
    if any(key not in scaling.following(sweep.points) for key in choices):
        report.chapter("Choices", prefix)
        report.add(*sweep_choices.figures(sweep.points, choices, unit))
    if any(scaling.stages(point) > 1 for point in sweep.points):
        report.chapter("Pipeline", prefix)
        report.add(sweep_choices.bubbles(sweep.points))
    report.chapter("Memory and transfers", prefix)
    report.add(sweep_choices.time_and_memory(sweep.points, unit), sweep_choices.hiding(sweep.points))


def overview(found):
    """One row for each point with records."""
    rows = []
    tiers = [tier for tier in scaling.peaks(found[0]) if any(scaling.peaks(point)[tier] for point in found)]
    for point in found:
        rate, seconds, peak = scaling.rate(point), scaling.step_seconds(point), scaling.peaks(point)
        run = point.runs[0]
        rows.append([point.name, point.ranks, len(point.runs), seconds.count, rate.median, seconds.median, *(peak[tier] for tier in tiers),
                     int(run.step[-1]), float(run.loss[-1])])
    columns = [page.Column("point"), page.Column("ranks"), page.Column("runs"), page.Column("steps counted")]
    columns += [page.Column("throughput", "token/s", lambda rate: f"{look.count_text(rate)} token/s"), page.Column("step", "s", look.second_text)]
    columns += [page.Column(f"{tier} peak", "byte", look.byte_text) for tier in tiers]
    columns += [page.Column("last step"), page.Column("its loss", "nat", lambda loss: f"{loss:.7g}")]
    return page.Table("points", "The points", f"{_counted(found)} {_agreement(found)}", columns, rows)


def _without_records(sweep):
    """The tables of points that there are no numbers of."""
    items = []
    if sweep.dropped:
        items.append(page.Table("dropped", "Dropped before they ran", "What plan refuses is not queued.",
                                [page.Column("point"), page.Column("reason")], [list(row) for row in sweep.dropped]))
    if sweep.unfinished:
        columns = [page.Column(name) for name in ("point", "state", "exit code", "attempts", "reason")]
        failed = sum(state == "failed" for _, state, *_ in sweep.unfinished)
        said = f"{look.number_of(len(sweep.unfinished), 'run')} without a whole record, {failed} of them failed. They count in no figure."
        items.append(page.Table("unfinished", "Not finished", said, columns, [list(row) for row in sweep.unfinished]))
    return items


def _lead(sweep):
    facts = sweep.facts
    parts = [sweep.about[:1].upper() + sweep.about[1:].rstrip(".") + "." if sweep.about else ""]
    if facts:
        parts.append(f"Base input {facts['base']}, machine {facts['machine']}, version {facts['version']} ({facts['commit']}).")
    if sweep.kind in ("weak", "strong"):
        beside = {"batch": " and the batch", "layers": " and the number of layers"}.get(facts["scales"], "")
        parts.append(f"With the ranks {'grow' if beside else 'grows'} {facts['grows']}{beside}.")
    parts.append(f"{look.number_of(len(sweep.points), 'point')} with numbers, {len(sweep.dropped)} dropped, "
                 f"{look.number_of(len(sweep.unfinished), 'run')} not finished.")
    return " ".join(part for part in parts if part)


def _counted(found):
    counts = [scaling.step_seconds(point).count for point in found]
    steps = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    lone = any(len(run.step) == 1 for point in found for run in point.runs)
    return f"Medians over {steps} steps a point, the first of each run left out{' where there are others' if lone else ''}."


def _agreement(found):
    """What the losses of points that trained on the same data have in common."""
    step, count, difference = scaling.agreement(found)
    if count < 2:
        return ""
    said = "have the same loss, bit for bit" if difference == 0 else f"have losses that differ by at most {difference:.1e} of their value"
    return f"At step {step}, {count} points that trained on the same data {said}."

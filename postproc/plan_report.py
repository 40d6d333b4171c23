"""The chapter of an input, or of what `quadrille plan --json` printed: books at the peak, and where that is too much, what would fit.

A run that is refused for memory (exit code 3) leaves no record: its input says all there is. Starts the binary for an input; reads what it printed.
"""
import json
import pathlib
import shutil
import subprocess
import tempfile

import numpy

import inputs
import look
from page import Column, Figure, Note, Table
from record import DAMAGED, MISSING, RecordError, newest


def recognises(path):
    """An input, or a plan as JSON; or the directory of a job (jobscripts/submit.py) that has left no record, which holds its plan."""
    return path.is_file() and path.suffix in (".yaml", ".yml", ".json") or path.is_dir() and _file_of(path).is_file() and not _has_record(path)


def _file_of(path):
    return path / "plan.json" if path.is_dir() else path


def _has_record(folder):
    try:
        return newest(folder).is_file()
    except RecordError:
        return False


def title(path):
    return f"Plan of {path.name}"


def write(page, path, options, prefix=""):
    path = _file_of(path)
    plan = _read(path) if path.suffix == ".json" else ask(path, options.overrides, options.ranks, options.quadrille)
    chapter(page, title(path) if prefix else "Overview", plan, prefix)


def write_of_run(page, run, fit, heading, options, prefix=""):
    """The run's own input, planned within `fit` (bytes, or as inputs write them) of device memory. Raises RecordError before it adds anything."""
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        path = pathlib.Path(folder) / "resolved.yaml"
        path.write_text(run.config_yaml, encoding="utf-8")
        plan = ask(path, [f"device.memory_limit={fit}"], run.ranks, options.quadrille)
    chapter(page, heading, plan, prefix)


def chapter(page, heading, plan, prefix):
    page.chapter(heading, prefix, verdict(plan))
    page.add(*(figure for tier in tiers_in_use(plan) for figure in [books(plan, tier)]), states(plan))
    if plan["memory_limit"] is None and plan["host_memory_limit"] is None:
        page.add(Note("No limit was given.", "With device.memory_limit=1GiB, say, the plan tells whether the input fits in that, and what would."))
    elif not plan["fits"]:
        page.add(*alternatives(plan))


def _read(path):
    return _checked(inputs.read_json(path, "plan"), path)


def _checked(plan, source):
    missing = [key for key in ("programs", "fits", "suggestions", "memory_limit", "host_memory_limit", "pipeline") if key not in plan]
    if missing:
        raise RecordError(f"{source} is, or printed, no plan (quadrille plan --json): it is without {', '.join(missing)}", DAMAGED)
    return plan


def ask(path, overrides=(), ranks=None, binary=None):
    """The plan of an input, by the binary. Raises RecordError with its words and its exit code where it refuses the input."""
    binary = binary or _binary()
    command = [str(binary), "plan", str(path), *overrides, *(["--ranks", str(ranks)] if ranks is not None else []), "--json"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RecordError(f"{binary} does not start: {error.strerror}", MISSING) from error
    if result.returncode not in (0, 3):
        raise RecordError(f"the plan of {path} was refused (exit code {result.returncode}):\n{result.stderr.strip()}", result.returncode or DAMAGED)
    try:
        return _checked(json.loads(result.stdout), binary)
    except ValueError as error:
        raise RecordError(f"{binary} is no quadrille: what it printed for the plan of {path} is no plan ({error})", MISSING) from error


def _binary():
    built = pathlib.Path(__file__).resolve().parents[1] / "build/quadrille"
    found = built if built.exists() else shutil.which("quadrille")
    if not found:
        raise RecordError("there is no build/quadrille and no quadrille in PATH, which plan an input; name it by --quadrille FILE", MISSING)
    return found


# ---- numbers -------------------------------------------------------------------------------------------------------------

def tiers_in_use(plan):
    return [tier for tier in plan["programs"][0]["peak_bytes"] if any(program["peak_bytes"][tier] for program in plan["programs"])]


def limit_of(plan, tier):
    """Bytes; None where the tier has no limit."""
    return {"device": plan["memory_limit"], "host": plan["host_memory_limit"]}.get(tier)


def fullest(plan, tier):
    """The program whose tier peaks highest."""
    return max(plan["programs"], key=lambda program: program["peak_bytes"][tier])


def shortfall(plan, tier):
    """Bytes by which the tier is too small; 0 where it is not."""
    limit = limit_of(plan, tier)
    return max(0, fullest(plan, tier)["peak_bytes"][tier] - limit) if limit else 0


def verdict(plan):
    ranks = look.number_of(plan["ranks"], "rank")
    text = f"{look.count_text(plan['parameters'])} parameters on {ranks}. "
    if plan["memory_limit"] is None and plan["host_memory_limit"] is None:
        return text + "No memory limit was given."
    if plan["fits"]:
        return text + "It fits."
    too_much = [f"{look.byte_text(shortfall(plan, tier))} more than {look.byte_text(limit_of(plan, tier))} on the {tier} tier"
                for tier in tiers_in_use(plan) if shortfall(plan, tier)]
    return f"{text}It does not fit: it needs {' and '.join(too_much) or 'more than there is'}."


# ---- figures -------------------------------------------------------------------------------------------------------------

def books(plan, tier):
    programs = plan["programs"]
    names = [*programs[0]["books"][tier], "packing"]
    table = numpy.array([[*(program["books"][tier][book] for book in names[:-1]), program["packing"][tier]] for program in programs])
    limit = limit_of(plan, tier)
    divisor, unit = look.byte_unit(max(int(table.sum(axis=1).max()), limit or 0))
    canvas, plots = look.axes(height=3.2)
    plot = plots[0, 0]
    bottom = numpy.zeros(len(programs))
    for b, name in enumerate(names):
        plot.bar(range(len(programs)), table[:, b] / divisor, bottom=bottom, width=0.7, label=name, **look.fill(name))
        bottom += table[:, b] / divisor
    if limit:
        plot.axhline(limit / divisor, color=look.RED, linewidth=1.2, linestyle="--", label=f"limit, {look.byte_text(limit)}")
    every = -(-len(programs) // 16)
    ticks = [f"{program['coordinate']['pp']}\n× {program['count']}" for program in programs]
    plot.set_xticks(range(0, len(programs), every), ticks[::every])
    plot.set(xlabel="stage (pp coordinate) and how many ranks run it", ylabel=f"{tier} peak of a rank [{unit}]")
    look.legend_beside(plot)
    columns = [Column("stage"), Column("ranks"), *(Column(name, "byte") for name in names)]
    rows = [[program["coordinate"]["pp"], program["count"], *values] for program, values in zip(programs, table.tolist())]
    heading = f"Books at the peak of the {tier} tier"
    return Figure(f"plan_{tier}", heading, _books_caption(plan, tier, names, table), canvas, Table(f"plan_{tier}", heading, "", columns, rows))


def _books_caption(plan, tier, names, table):
    program = fullest(plan, tier)
    row = table[plan["programs"].index(program)]
    largest = int(row.argmax())
    text = f"The fullest ranks are those of stage {program['coordinate']['pp']}: {look.byte_text(row.sum())}, of which {names[largest]} "
    text += f"{look.byte_text(row[largest])} ({look.percent_text(row[largest] / max(1, row.sum()))})."
    if tier == "device" and program.get("peak_op"):
        text += f" The peak stands at the op ‘{program['peak_op'].strip()}’."
    limit = limit_of(plan, tier)
    if limit is None:
        return text
    missing = shortfall(plan, tier)
    return text + (f" The limit is {look.byte_text(limit)}: {look.byte_text(missing)} too little." if missing else
                   f" The limit of {look.byte_text(limit)} leaves {look.byte_text(limit - int(row.sum()))} free.")


def states(plan):
    names = list(plan["programs"][0]["states"])
    columns = [Column("stage"), Column("ranks"), Column("operations"), *(Column(name, "byte", look.byte_text) for name in names)]
    rows = [[program["coordinate"]["pp"], program["count"], program["operations"], *(program["states"][name] for name in names)]
            for program in plan["programs"]]
    total = max(sum(program["states"].values()) for program in plan["programs"])
    text = (f"What a rank keeps from step to step, {look.byte_text(total)} at most, on whatever tier; the pipeline's bubble by the FLOPs of its "
            f"stages is {look.percent_text(plan['pipeline']['bubble_fraction'])}.")
    return Table("plan_states", "Training state of a rank", text, columns, rows)


def alternatives(plan):
    """What fits instead, as a picture and as overrides to be pasted."""
    found = plan["suggestions"]
    if not found:
        return [Note("Nothing that was tried fits.", "Smaller passes, ZeRO stages, recompute, sequence parallelism, offload, bf16 and finer grids of "
                     "the same ranks were tried, alone and together: it takes more ranks, or more memory.")]
    limit, now = plan["memory_limit"], fullest(plan, "device")["peak_bytes"]["device"]
    peaks = [now, *(s["peak_bytes"] for s in found)]
    divisor, unit = look.byte_unit(max(*peaks, limit or 0))
    canvas, plots = look.axes(height=1.2 + 0.4 * len(peaks))
    plot = plots[0, 0]
    labels = ["the input as it is", *(f"alternative {number}" for number in range(1, len(found) + 1))]
    plot.barh(range(len(peaks)), [peak / divisor for peak in peaks], height=0.6, facecolor=look.BLUE, edgecolor="#333333")
    plot.patches[0].set(facecolor=look.GREY, hatch="//")
    for at, suggestion in enumerate(found, 1):
        plot.text(1.0, at, f"cost ×{suggestion['cost']:.2f}", transform=plot.get_yaxis_transform(), ha="right", va="center", fontsize=8)
    if limit:
        plot.axvline(limit / divisor, color=look.RED, linewidth=1.2, linestyle="--", label=f"device limit, {look.byte_text(limit)}")
        plot.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    look.lay_down(plot, labels)
    plot.set(xlabel=f"device peak of the fullest rank [{unit}]")
    plot.set_xlim(right=1.18 * max(*peaks, limit or 0) / divisor)
    cheapest = min(found, key=lambda s: s["cost"])
    text = (f"{look.number_of(len(found), 'change')} of the input would fit. The cheapest is {cheapest['change']}: "
            f"{look.byte_text(cheapest['peak_bytes'])} on the device at {cheapest['cost']:.2f} times the cost (FLOPs, and bytes sent or copied) of "
            "the input as it is.")
    columns = [Column("alternative"), Column("overrides, ready to be pasted"), Column("device", "byte", look.byte_text),
               Column("host", "byte", look.byte_text), Column("nvme", "byte", look.byte_text), Column("cost", "1", lambda c: f"{c:.2f}")]
    rows = [[number, s["change"], s["peak_bytes"], s.get("host_bytes", 0), s.get("nvme_bytes", 0), s["cost"]] for number, s in enumerate(found, 1)]
    table = Table("alternatives", "What would fit, as overrides", "In place of overrides of the same keys; last come those that change the numbers.",
                  columns, rows)
    return [Figure("alternatives_peak", "What would fit", text, canvas), table]

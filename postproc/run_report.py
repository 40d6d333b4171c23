"""The chapters of one run: what it was, how it went, where its time, its memory and its messages went."""
import numpy

import inputs
import ledgers
import look
import plan_report
import record
import run_memory
import run_moves
import run_progress
import run_time
import run_trace
from page import Column, Listing, Note, Table


def recognises(path):
    """A run's directory, or a record."""
    return path.is_dir() or path.suffix == ".h5"


def title(path):
    return f"Run {name_of(path)}"


def name_of(path):
    """A directory's name, of a job's output that of the job; 'NAME/run-2.h5' of a record that is named itself."""
    path = path.resolve()
    folder = path if path.is_dir() else path.parent
    name = folder.parent.name if folder.name == "output" else folder.name
    return name if path.is_dir() else f"{name}/{path.name}"


def write(page, path, options, prefix=""):
    """Adds the run's chapters to the page. Raises record.RecordError."""
    runs = record.history(path)
    run = runs[-1]
    stepped = len(run.step) > 0
    trace, why_not = _trace(run)

    page.chapter(title(path) if prefix else "Overview", prefix, subtitle(run))
    page.add(summary(runs, options.peak), *_going_on(runs))
    if stepped:
        page.add(run_progress.loss(runs), run_progress.gradients(runs), run_progress.speed(run, options.peak))
    else:
        page.add(run_progress.no_steps(run))

    page.chapter("Time", prefix, "Seconds of every step, of every rank, each in one category; they sum to the wall clock.")
    if stepped:
        page.add(run_time.by_rank(run), run_time.by_step(run))
    if run.coordinates[:, 2].any():
        page.add(*([run_time.bubble(run)] if stepped else []), run_trace.gantt(run, trace) if trace else Note("No pipeline chart.", why_not))
    page.add(run_trace.queues(run, trace) if trace else Note("No chart of the queues.", why_not))

    page.chapter("Memory", prefix, "Five books on each tier; a plan's bytes are those that the run takes.")
    page.add(*present(run_memory.books(run), run_memory.by_rank(run), run_memory.process(run)))
    page.add(run_memory.over_step(run, trace) if trace else Note("No memory over time.", why_not))

    page.chapter("Moves", prefix, "What travelled between ranks and between tiers of memory, and whether arithmetic hid it.")
    page.add(*present(run_moves.between_ranks(run), run_moves.between_tiers(run)))

    page.chapter("Machine and input", prefix)
    page.add(environment(run), *present(choices(run)), Listing("The input as resolved: fed back, it runs the same", run.config_yaml))
    if options.fit:
        plan_report.write_of_run(page, run, options.fit, f"The same input within {options.fit} of device memory", options, prefix)
    elif was_killed(run) and (peak := int(run.predicted_peak[:, run.tiers.index("device")].sum(axis=1).max())):
        fit = peak * 3 // 4
        heading = f"If it was killed for memory: what would take {look.byte_text(fit)}, a quarter less on the device"
        try:
            plan_report.write_of_run(page, run, fit, heading, options, prefix)
        except record.RecordError as error:
            page.add(Note("Nothing is said of what would take less memory.", f"{error}."))


def was_killed(run):
    """Whether it ended without a word: its record knows no end, and nobody holds the lock that a run has on its directory. Without locks nobody can
    tell, and it was not."""
    return not run.complete and run.exit_code == -1 and record.is_held(run.path.parent) is False


def present(*items):
    return [item for item in items if item is not None]


def subtitle(run):
    ranks, hosts = look.number_of(run.ranks, "rank"), look.number_of(len(set(run.hosts)), "host")
    return f"{ranks} on {hosts}, {run_progress.grid_text(run)}; begun {run.start_time}. {run_progress.ending(run)}"


def _trace(run):
    """(the run's trace, "") or (None, why there is none)."""
    beside = record.trace_of(run.path)
    if not beside:
        return None, "The run left no trace; with output.trace=true its first ten steps are traced."
    try:
        return record.load_trace(beside), ""
    except record.RecordError as error:
        return None, f"{error}."


def _going_on(runs):
    """How the records follow each other, where there is more to say than one begun at the first step."""
    notes = [f"{run.path.name} goes on after step {run.continues_after} on {run_progress.grid_text(run)}, from {run.continues}."
             for run in runs if run.continues]
    if not notes:
        return []
    more = " Losses and gradients below are of all of them, all else is of the last." if len(runs) > 1 else ""
    return [Note("The run went on from a checkpoint.", " ".join(notes) + more)]


def summary(runs, peak=0.0):
    """The run in a dozen figures."""
    run = runs[-1]
    settings = inputs.of(run)
    done = int(run.step[-1]) if len(run.step) else 0
    rows = [("steps", f"{done} of {settings.get('train.steps', '?')}, {'complete' if run.complete else 'not complete'}"),
            ("exit code", "none yet" if run.exit_code < 0 else str(run.exit_code)),
            ("grid", f"{look.number_of(run.ranks, 'rank')}: {run_progress.grid_text(run)}"),
            ("training", f"zero stage {settings.get('sharding.zero_stage', '?')}, {settings.get('train.precision', '?')}, schedule "
                         f"{settings.get('pipeline.schedule', '?')}, {settings.get('train.gradient_accumulation_steps', '?')} × micro-batch "
                         f"{settings.get('train.micro_batch_size', '?')}, global batch {settings.get('train.global_batch_size', '?')}")]
    if len(run.step):
        by_step = ledgers.speed(run, peak)
        warm = ledgers.warm(run)
        middle = ledgers.median_and_spread(by_step.tokens_per_second[warm])[0]
        rows += [("loss", f"{run.loss[-1]:.6f} at step {run.step[-1]}"),
                 ("speed", f"{look.count_text(middle)} tokens/s, {look.second_text(float(numpy.median(run.seconds[warm])))} a step (medians)"),
                 ("MFU", look.percent_text(ledgers.median_and_spread(by_step.mfu[warm])[0]))]
        shares = ledgers.shares(run)
        rows += [("arithmetic", look.percent_text(shares.get("compute", 0) + shares.get("optimizer", 0)) + " of rank-seconds")]
    for tier in ledgers.fullest_ranks(run):
        rows.append((f"{tier.tier} peak", f"{look.byte_text(tier.peak)} on rank {tier.rank}"))
    rows += [("program", f"quadrille {run.version}, commit {run.git_commit}"), ("command", run.command)]
    return Table("summary", "In short", "", [Column("what"), Column("figure")], rows)


def environment(run):
    rows = sorted(run.environment.items())
    return Table("environment", "Machine", f"What the run could tell of its machine, libraries and job; {look.number_of(run.ranks, 'rank')}.",
                 [Column("what"), Column("value", "", str)], [(name, str(value)) for name, value in rows])


def choices(run):
    if not run.choices:
        return None
    rows = [(name, str(value)) for name, value in sorted(run.choices.items())]
    return Table("choices", "What auto took", "Keys that the input left to the program, which asked the machine.",
                 [Column("key"), Column("taken, and why")], rows)

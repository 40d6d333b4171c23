"""Figures of how a run went: losses, gradients and learning rate, speed. Each takes the records of a run, oldest first, and the last is the run."""
import numpy

import inputs
import ledgers
import look
from page import Column, Figure, Note, Table


def no_steps(run):
    """What stands in place of every figure over steps where there is none."""
    return Note("No step was recorded.", "The run ended, or was looked at, before its first step was done: losses, speed and time are empty. "
                f"Its memory as planned, environment and input are below. {ending(run)}")


def ending(run):
    """The run's end in words."""
    meanings = {-1: "It is running, or was killed before it could say; if for memory, report.py --fit BYTES tells what would take no more than that.",
                0: "It ended well.", 2: "It was refused (exit code 2).", 3: "It did not fit in memory (exit code 3).",
                4: "Training diverged (exit code 4): a loss or a gradient norm was not finite.",
                5: "Reading or writing failed (exit code 5).", 6: "A rank failed or the job stood still (exit code 6).",
                75: "It was stopped on purpose and saved a checkpoint (exit code 75): the same command goes on."}
    return meanings.get(run.exit_code, f"It ended with exit code {run.exit_code}.")


def loss(runs):
    step, values = ledgers.joined(runs, "step"), ledgers.joined(runs, "loss")
    held_step, held = ledgers.joined(runs, "evaluation_step"), ledgers.joined(runs, "evaluation_loss")
    canvas, plots = look.axes(height=3.2)
    plot = plots[0, 0]
    plot.plot(step, values, label="training", markevery=look.markers_every(len(step)), **look.line(0))
    if len(held):
        plot.plot(held_step, held, label="held out", markevery=look.markers_every(len(held)), **look.line(1))
    _mark_not_finite(plot, step, values)
    _mark_continuations(plot, runs)
    plot.set(xlabel="step", ylabel="loss [nat per token]")
    look.whole_steps(plot)
    plot.legend()
    rows = [*((int(s), "training", float(v)) for s, v in zip(step, values)), *((int(s), "held out", float(v)) for s, v in zip(held_step, held))]
    table = Table("loss", "Loss", "", [Column("step"), Column("of"), Column("loss", "nat", lambda v: f"{v:.6f}")], rows)
    return Figure("loss", "Loss", _loss_caption(step, values, held_step, held), canvas, table)


def _loss_caption(step, values, held_step, held):
    finite = numpy.isfinite(values)
    if not finite.any():
        return f"No loss is finite: {look.number_of(len(step), 'step')}, the first is step {step[0]}."
    good_step, good = step[finite], values[finite]
    text = f"The training loss goes from {good[0]:.4f} at step {good_step[0]} to {good[-1]:.4f} at step {good_step[-1]}"
    text += f"; the least is {good.min():.4f} at step {good_step[good.argmin()]}." if len(good) > 1 else "."
    if len(held):
        near = good[good_step <= held_step[-1]][-10:]
        gap = f", {held[-1] - near.mean():+.4f} against the mean of the {len(near)} training steps before" if len(near) else ""
        text += f" Held out it is {held[-1]:.4f} after step {held_step[-1]}{gap}."
    else:
        text += " Nothing was held out (evaluation.interval=0)."
    if not finite.all():
        text += f" {look.number_of(int((~finite).sum()), 'step')} without a finite loss, the first step {step[~finite][0]}: marked on the lower edge."
    return text


def _mark_not_finite(plot, step, values):
    bad = step[~numpy.isfinite(values)]
    if len(bad):
        plot.plot(bad, [0.02] * len(bad), "x", color=look.RED, markersize=7, transform=plot.get_xaxis_transform(), clip_on=False, label="not finite")


def _mark_continuations(plot, runs):
    for run in runs[1:]:
        plot.axvline(run.continues_after + 0.5, color=look.BLACK, linewidth=0.8, linestyle=":")
        plot.text(run.continues_after + 0.5, 0.98, f" on {grid_text(run)}", transform=plot.get_xaxis_transform(), va="top", fontsize=8)


def grid_text(run):
    """'dp 2 · tp 2' of the axes that are more than 1; 'one rank'."""
    extents = run.coordinates.max(axis=0) + 1
    return " · ".join(f"{axis} {extent}" for axis, extent in zip(("dp", "tp", "pp", "sp"), extents) if extent > 1) or "one rank"


# ---- gradients -----------------------------------------------------------------------------------------------------------

def gradients(runs):
    """Norm, learning rate, and where they say anything the loss scale and the norm of residuals."""
    step = ledgers.joined(runs, "step")
    lines = [("grad_norm", "gradient norm [1]"), ("learning_rate", "learning rate [1]")]
    lines += [(name, label) for name, label in (("loss_scale", "loss scale [1]"), ("residual_norm", "residual norm [1]"))
              if len(set(ledgers.joined(runs, name))) > 1]
    canvas, plots = look.axes(rows=len(lines), height=1.75, sharex=True)
    for number, (plot, (name, label)) in enumerate(zip(plots[:, 0], lines)):
        values = ledgers.joined(runs, name)
        plot.plot(step, values, markevery=look.markers_every(len(step)), **look.line(number))
        plot.set_ylabel(label)
        if name == "loss_scale":
            plot.set_yscale("log", base=2)
        if name == "grad_norm":
            _mark_not_finite(plot, step, values)
            _mark_clipping(plot, runs[-1], values)
    plots[-1, 0].set_xlabel("step")
    look.whole_steps(plots[-1, 0])
    columns = [Column("step"), Column("gradient norm"), Column("clip factor"), Column("learning rate"), Column("loss scale"), Column("residual norm")]
    names = ("step", "grad_norm", "clip_factor", "learning_rate", "loss_scale", "residual_norm")
    rows = list(zip(*(ledgers.joined(runs, name).tolist() for name in names)))
    return Figure("gradients", "Gradients and learning rate", _gradients_caption(runs), canvas, Table("gradients", "Gradients", "", columns, rows))


def _mark_clipping(plot, run, norms):
    limit = inputs.of(run).get("train.clip_grad")
    finite = norms[numpy.isfinite(norms)]
    if isinstance(limit, (int, float)) and limit > 0 and len(finite) and finite.max() > limit / 2:
        plot.axhline(limit, color=look.BLACK, linewidth=0.8, linestyle="--", label=f"train.clip_grad {limit:g}")
        plot.legend()


def _gradients_caption(runs):
    step, norm, factor, rate, scale = (ledgers.joined(runs, name) for name in ("step", "grad_norm", "clip_factor", "learning_rate", "loss_scale"))
    text = ""
    finite = numpy.isfinite(norm)
    if finite.any():
        most = int(numpy.where(finite, norm, -1).argmax())
        text += f"The gradient norm before clipping is {norm[finite][-1]:.3g} at the end and {norm[most]:.3g} at most, at step {step[most]}; "
    clipped = int((factor < 1).sum())
    text += f"{clipped} of {look.number_of(len(step), 'step')} were clipped. "
    text += f"The learning rate is {rate.max():.3g} at most, first at step {step[int(rate.argmax())]}, and {rate[-1]:.3g} at the end."
    if len(set(scale)) > 1:
        text += f" The loss scale goes from {scale[0]:g} to {scale[-1]:g} and was halved {int((scale[1:] < scale[:-1]).sum())} times."
    if not finite.all():
        text += f" Norms that are not finite: {int((~finite).sum())}, marked on the lower edge; those steps changed no weight."
    return text


# ---- speed ---------------------------------------------------------------------------------------------------------------

def speed(run, peak_of_rank=0.0):
    """`peak_of_rank`: flop/s of one rank's hardware, 0 where it is not known."""
    by_step = ledgers.speed(run, peak_of_rank)
    rows = ledgers.warm(run)
    middle, least, most = ledgers.median_and_spread(by_step.tokens_per_second[rows])
    canvas, plots = look.axes(rows=2, height=2.1, sharex=True)
    every = look.markers_every(len(run.step))
    plots[0, 0].plot(run.step, by_step.tokens_per_second, label="by step", markevery=every, **look.line(0))
    plots[0, 0].axhline(middle, color=look.BLACK, linewidth=0.8, linestyle="--", label="median")
    plots[0, 0].set_ylabel("speed [tokens/s]")
    if by_step.peak:
        plots[1, 0].plot(run.step, 100 * by_step.mfu, label="MFU", markevery=every, **look.line(2))
        plots[1, 0].set_ylabel("MFU [% of peak]")
    else:
        both = ("of the model", by_step.model_flops_per_second), ("executed", by_step.hardware_flops_per_second)
        for number, (label, values) in enumerate(both, 2):
            plots[1, 0].plot(run.step, values / 1e9, label=label, markevery=every, **look.line(number))
        plots[1, 0].set_ylabel("arithmetic [Gflop/s]")
    for plot in plots[:, 0]:
        plot.set_ylim(bottom=0)
        plot.legend(loc="lower right")
    plots[1, 0].set_xlabel("step")
    look.whole_steps(plots[1, 0])
    spread = f" ({look.count_text(least)} to {look.count_text(most)})" if least != most else ""
    text = f"{look.count_text(middle)} tokens/s by the median step{spread}"
    text += ", the first step left out, which warms up; dips are steps that something held up." if rows.start else ", of the only step."
    if run.seconds_of("checkpoint")[rows].any():
        text += " Saves count in their steps here; the console's rates leave them out."
    flops = ledgers.median_and_spread(by_step.model_flops_per_second[rows])[0]
    text += f" The model's arithmetic is {look.count_text(flops)}flop/s for the whole job"
    if by_step.peak:
        text += f", {look.percent_text(ledgers.median_and_spread(by_step.mfu[rows])[0])} of a peak of {look.count_text(by_step.peak)}flop/s (MFU)."
    else:
        text += "; MFU is n/a, since the record tells no peak of this hardware (report.py --peak FLOPS gives a rank's)."
    columns = [Column("step"), Column("time", "s"), Column("tokens"), Column("speed", "tokens/s"), Column("model", "flop/s"),
               Column("executed", "flop/s"), Column("MFU", "1")]
    share = [None if numpy.isnan(value) else float(value) for value in by_step.mfu]
    table = Table("speed", "Speed", "", columns, list(zip(run.step.tolist(), run.seconds.tolist(), run.tokens.tolist(),
                  by_step.tokens_per_second.tolist(), by_step.model_flops_per_second.tolist(), by_step.hardware_flops_per_second.tolist(), share)))
    return Figure("speed", "Speed", text, canvas, table)

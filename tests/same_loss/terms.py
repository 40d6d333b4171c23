"""What the ranks of one grid have yet to add up, compressed gradients' residuals and stale gradients, on another: nothing of it is lost unsaid.

Checks are functions of a Lab (resume.py); each returns its complaints and a remark, and its first line says what it holds.
"""
import re

from cases import packed
from trainer import h5py, numpy

SAVING = "checkpoint.interval=3 checkpoint.keep=0"
# A step of SGD without decay and clipping takes lr times what was sent from the weights, so that what was sent can be read off them.
PLAIN_SGD = "train.clip_grad=0 optimizer.weight_decay=0 optimizer.lr=0.1 optimizer.type=sgd"


def stored(folder, group):
    """The datasets of a group of a checkpoint by name, in float64."""
    found = {}
    with h5py.File(folder / "checkpoint.h5", "r") as file:
        if group in file:
            file[group].visititems(lambda name, item: found.update({name: item[()].astype(float)}) if isinstance(item, h5py.Dataset) else None)
    return found


def unsent(folder):
    """By parameter, what all ranks together have left unsent."""
    return {name: terms.sum(axis=0) for name, terms in stored(folder, "residual").items()}


def nothing_unsent_is_lost(lab):
    """72: on any grid and by any method, what a step sends and leaves unsent is its gradient and what was unsent before."""
    complaints, least, most = [], numpy.inf, 0.0
    few = packed("topk", "ratio=0.05")
    for writer in (f"dp4 {few}", f"dp2 zero2 {packed('qsgd', 'bits=3')}", f"dp4 shard2 zero1 {few}"):
        straight, _ = lab.record("sgd", writer, "run", f"{SAVING} {PLAIN_SGD} train.steps=4", fresh=True)
        resume = f"checkpoint.interval=4 {PLAIN_SGD} train.steps=4 checkpoint.resume={lab.step('run', 3)}"
        before, weights, rate = unsent(lab.step("run", 3)), stored(lab.step("run", 3), "parameters"), 0.1
        lab.record("sgd", "", "whole", resume, fresh=True)
        whole = stored(lab.step("whole", 4), "parameters")
        for reader in (f"dp2 {few}", f"dp4 zero3 {packed('qsgd', 'bits=3')}", f"dp4 shard2 zero2 {packed('topk')}",
                       f"dp2 sp2 {packed('qsgd', 'bits=3')}", f"dp2 tp2 {packed('bf16')}"):
            record, _ = lab.record("sgd", reader, "again", resume, fresh=True)
            ours, theirs = record["steps/loss"][0], straight["steps/loss"][3]  # of weights that step 3 has left
            if abs(ours / theirs - 1) > 1e-5:
                complaints.append(f"'{writer}' read by '{reader}': loss {ours}, straight on {theirs}")
            after, new = unsent(lab.step("again", 4)), stored(lab.step("again", 4), "parameters")
            for name, was in weights.items():
                due = (was - whole[name]) / rate + before.get(name, 0)
                found = (was - new[name]) / rate + after.get(name, 0)
                # Weights are near 1 at most, so their rounding is 1e-7, divided by the rate.
                off, allowed = numpy.abs(found - due).max(), 2e-6
                most = max(most, off)
                if off > allowed:
                    complaints.append(f"'{writer}' read by '{reader}': {name} is {off:.1e} off what was due")
        least = min(least, max(numpy.abs(terms).max() for terms in before.values()))
    if least < 1e-4:
        complaints.append(f"no residual is above {least:.1e}: this shows nothing")
    return complaints, f"15 pairs, within {most:.1e}, where residuals are up to {least:.1e} at least"


def updates_to_come(lab):
    """A stale update that is still to come is made on any grid: the losses after it are those of the run that never stopped, to rounding."""
    complaints, worst = [], 0.0
    shape = "comm.staleness=1 train.steps=7"
    for writer in ("dp4 zero1", "dp2 pp2", ""):
        straight, _ = lab.record("gpt", writer, "run", f"{shape} {SAVING}", fresh=True)
        for reader in ("", "dp2 tp2", "pp2", "dp2 sp2 zero1", "dp4 shard2 offload.optimizer=cpu"):
            again, _ = lab.record("gpt", reader, "again", f"{shape} checkpoint.resume={lab.step('run', 3)}", fresh=True)
            for name, allowed in (("loss", 1e-5), ("grad_norm", 1e-4)):
                ours, theirs = again[f"steps/{name}"], straight[f"steps/{name}"][3:]
                off = numpy.abs(ours / theirs - 1)
                worst = max(worst, float(off[:2].max()))
                if off[:2].max() > allowed or off.max() > 10 * allowed:
                    complaints.append(f"'{writer}' read by '{reader}': {name} {ours}, straight on {theirs}")
    return complaints, f"15 pairs; relative difference {worst:.1e} at most in the next two steps"


def said(lab, split, step, changes, words):
    """Complaints unless a run of that split that goes on after the step says each of the words."""
    _, stdout = lab.record("gpt", split, "again", f"train.steps=4 checkpoint.resume={lab.step('run', step)} {changes}", fresh=True)
    told = "\n".join(line for line in stdout.splitlines() if line.startswith("resume:"))
    return [f"{split}: not said: {word}\n{told}" for word in words if not re.search(word, told)], told


def what_has_no_place_is_told(lab):
    """72: residuals and updates that the new run has no place for are dropped with a line, and what begins at zero is told."""
    topk, complaints = packed("topk"), []
    lab.record("gpt", f"dp2 {topk}", "run", f"{SAVING} train.steps=3", fresh=True)
    for split, words in (("dp2", ["residuals are dropped.* is lost: layers.0", r"\(\d+ in all\)"]),
                         (f"dp4 {topk}", ["are of 2 there and 4 holders here"]),
                         (f"dp2 {topk} comm.compression.exclude=[layers.1]",
                          ["residuals are dropped.*layers.1", "residuals begin at zero.*embedding"]),
                         (f"dp2 {topk} comm.compression.error_feedback=false", ["residuals are dropped"]),
                         (f"dp2 {packed('qsgd')}", ["comm.compression.method is qsgd; the checkpoint's run had topk"])):
        complaints += said(lab, split, 3, "", words)[0]
    wrong, told = said(lab, f"dp2 {topk}", 3, "", ["goes on after step 3"])
    complaints += wrong + ([f"as before, and told of: {told}"] if re.search("residual|stale|updates nothing", told) else [])
    lab.record("gpt", "dp2 comm.staleness=1", "run", f"{SAVING} train.steps=3", fresh=True)
    complaints += said(lab, "dp2", 3, "", ["gradients of step 3, .* are dropped, for comm.staleness is 0"])[0]
    complaints += said(lab, f"dp2 {topk}", 3, "", ["residuals begin at zero"])[0]
    lab.record("gpt", "dp2", "run", f"{SAVING} train.steps=3", fresh=True)
    complaints += said(lab, "dp2 comm.staleness=1", 3, "", ["step 4 updates nothing"])[0]
    return complaints, ""


CHECKS = [(check.__name__, check) for check in (nothing_unsent_is_lost, updates_to_come, what_has_no_place_is_told)]

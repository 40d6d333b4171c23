"""A run that goes on from a checkpoint is the run that never stopped: bit for bit on its own grid, to rounding on any other.

A check saves in one run, goes on from one of its checkpoints in another, and compares the two records. Reads cases.py for models and splits.
"""
import copy
import functools
import json
import math
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import FULL, Trainer, check_ledgers, h5py, numpy, parse_arguments, read_record, report, show, write_counting_text  # noqa: E402

import resumed  # noqa: E402
import terms  # noqa: E402
from cases import MODELS, overrides, packed  # noqa: E402

COLUMNS = ("step", "loss", "grad_norm", "clip_factor", "learning_rate", "loss_scale", "tokens", "data_hash")


class Lab:
    """Runs of the models of cases.py in one scratch folder, each in an output folder of its name."""

    def __init__(self, trainer, folder):
        self.trainer, self.folder = trainer, pathlib.Path(folder)
        write_counting_text(self.folder / "counting.txt")
        write_counting_text(self.folder / "short.txt", lines=6)  # some twenty sequences: an epoch is three steps

    def train(self, model, split, name, changes="", seconds=120, text="counting.txt"):
        """The Result of a run into the output folder `name`, where what stands stays, whatever its exit code. Of a key's changes the last counts."""
        source = MODELS[model] | {"data": MODELS[model]["data"] | {"train": [str(self.folder / text)]}, "offload": {"nvme_path": str(self.folder)}}
        words, ranks = overrides(split)
        (self.folder / "run.yaml").write_text(json.dumps(source))
        changed = dict(word.split("=", 1) for word in [*words, *changes.split(), f"output.directory={self.folder / name}"])
        arguments = ["train", "run.yaml", *(f"{key}={value}" for key, value in changed.items())]
        return self.trainer.run(arguments, ranks, self.folder / name, seconds)

    def record(self, model, split, name, changes="", fresh=False, record="run.h5", **more):
        """The record and stdout of a run that must end well; raises RuntimeError with what it printed if not."""
        if fresh:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        result = self.train(model, split, name, changes, **more)
        if result.exit_code != 0:
            raise RuntimeError(f"{model}: {split} {changes}\n{show(result)}")
        found = read_record(result.output, record)
        if broken := check_ledgers(found):
            raise RuntimeError("\n".join([f"{model}: {split} {changes}", *broken]))
        return found, result.stdout

    def step(self, name, step):
        return self.folder / name / "checkpoints" / f"step-{step:08}"


def same_rows(ours, theirs, first=1):
    """Complaints unless the rows from step `first` on are the same bits."""
    complaints = []
    for name in COLUMNS:
        a, b = (record[f"steps/{name}"][record["steps/step"] >= first] for record in (ours, theirs))
        if not numpy.array_equal(a, b, equal_nan=name in ("loss", "grad_norm")):
            complaints.append(f"{name}: {a}, without a stop {b}")
    for name in ("step", "loss"):
        if not numpy.array_equal(ours[f"evaluation/{name}"], theirs[f"evaluation/{name}"]):
            complaints.append(f"evaluation {name}: {ours[f'evaluation/{name}']}, without a stop {theirs[f'evaluation/{name}']}")
    return complaints


# ---- bit for bit on the same grid ------------------------------------------------------------------------------------------

# Model, split, changes, and the steps whose checkpoints are gone on from, one after the other, each in the same output folder.
EQUAL = [
    ("gpt", "", "", (3,)),
    ("gpt", "dp2 tp2", "", (7, 1, 4)),
    ("gpt", "dp2", "optimizer.beta2=0.999 optimizer.weight_decay=0", (3,)),  # 14: the step of the bias correction
    ("gpt", "dp2 pp2", "optimizer.lr_schedule=cosine optimizer.warmup_steps=4 optimizer.lr=3e-3", (2, 5)),
    ("llama", "pp2 sp2", "train.global_batch_size=4", (5,)),
    ("llama", "tp4", "", (6,)),  # more ranks than key-value heads
    ("llama", "tp2 megatron-sp sp2 ulysses", "", (3,)),
    ("dropout", "dp2 tp2", "", (3,)),
    ("dropout-llama", "pp2", "recompute.granularity=full", (4,)),
    ("documents", "dp2", "data.train=[short.txt]", (2, 4, 8)),  # in the first, second and third epoch
    ("gpt", "", "data.train=[short.txt] data.shuffle=false", (5,)),
    ("gpt", "dp2", "data.format=synthetic data.train=[]", (5,)),
    ("untied", "pp4 zero-bubble", "", (3,)),
    ("gpt", "pp2 dp2", "", (9,)),  # a tied table on two stages
    ("odd", "tp3", "", (3,)),
    ("evaluated", "dp2", "", (4, 3)),
    ("sgd", "dp2", "", (3,)),
    ("fp16", "dp2", "loss_scale.initial=1073741824 loss_scale.window=2", (3, 7)),  # 16: amid skipped steps, and amid a window
    ("fp16-dropout", "pp2", "loss_scale.initial=1024 loss_scale.window=3", (2, 5)),
    ("bf16", "dp2 zero1", "", (3,)),  # 15
    ("bf16-llama", "tp2", "train.gradient_dtype=bf16", (3,)),
    ("gpt", "dp2 zero2", "", (3,)),
    ("gpt", "dp4 zero3", "", (3,)),
    ("llama", "dp4 zero3 shard2", "", (3,)),
    ("bf16-dropout", "dp2 pp2 zero3", "", (6,)),
    ("tiny", "dp4 zero3", "", (3,)),  # 19: empty slices
    ("gpt", "dp2", "offload.optimizer=cpu", (3,)),
    ("bf16", "dp2", "offload.optimizer=nvme", (3,)),
    ("llama", "dp2 zero3", "offload.optimizer=nvme offload.parameters=nvme", (3,)),
    ("gpt", "", "offload.parameters=cpu offload.gradients=cpu offload.activations=cpu offload.optimizer=cpu", (3,)),
    ("lora", "dp2", "", (3,)),
    ("lora-odd", "tp3", "", (3,)),
    # 72: what compressed gradients have left unsent
    *(("gpt", f"dp2 zero{stage} {packed(method, 'ratio=0.05')}", "", (4, 8))
      for stage, methods in enumerate((("topk", "bf16"), ("topk", "qsgd"), ("topk", "qsgd"), ("topk", "bf16"))) for method in methods),
    ("fp16", f"dp2 zero1 {packed('fp16')}", "loss_scale.initial=1073741824 loss_scale.window=2", (3,)),
    ("gpt", f"dp4 shard2 {packed('topk')}", "", (3,)),
    ("llama", f"dp4 shard2 zero2 {packed('qsgd')}", "", (3,)),
    ("gpt", f"dp2 sp2 {packed('qsgd')}", "", (3,)),
    ("gpt", f"dp2 tp2 megatron-sp {packed('bf16')}", "", (3,)),
    ("gpt", f"dp2 pp2 {packed('topk', 'exclude=[]')}", "", (3,)),  # a tied table's, of both its stages
    ("untied", f"dp2 pp2 zero-bubble zero3 {packed('qsgd')}", "", (3,)),
    ("odd", f"dp3 zero1 {packed('qsgd', 'bits=3', 'exclude=[]')}", "", (5,)),
    ("gpt", f"dp2 {packed('qsgd')}", "offload.optimizer=cpu", (3,)),
    ("bf16", f"dp2 zero2 {packed('topk')}", "offload.optimizer=nvme", (3,)),
    ("lora", f"dp2 {packed('topk')}", "", (3,)),
    ("gpt", f"dp2 zero1 {packed('topk')}", "checkpoint.asynchronous=true", (5,)),
    # gradients whose update is still to come
    *(("gpt", f"{split} comm.staleness=1", "", (4, 8)) for split in ("", "dp2", "dp2 zero1")),
    ("gpt", "dp4 shard2 zero1 comm.staleness=1", "", (3,)),
    ("llama", "dp2 tp2 comm.staleness=1", "", (3,)),
    ("gpt", "dp2 pp2 comm.staleness=1", "", (3,)),
    ("untied", "sp2 pp2 zero-bubble comm.staleness=1", "", (3,)),
    ("bf16", "dp2 zero1 comm.staleness=1", "train.gradient_dtype=bf16", (3,)),
    ("gpt", "dp2 zero1 comm.staleness=1", "offload.optimizer=nvme checkpoint.asynchronous=true", (5,)),
]


def equal(lab, model, split, changes, steps):
    """From each of the steps again to the end, in the same output folder: the same rows, and the whole of them in one record."""
    saves = f"{changes} checkpoint.interval={math.gcd(*steps)} checkpoint.keep=0".replace("short.txt", str(lab.folder / "short.txt"))
    straight, _ = lab.record(model, split, "run", saves, fresh=True)
    complaints = []
    for step in steps:
        again, _ = lab.record(model, split, "run", f"{saves} checkpoint.resume={lab.step('run', step)}")
        complaints += [f"from step {step}: {c}" for c in same_rows(again, straight)]
    return complaints, f"{len(straight['steps/step'])} steps, again from {', '.join(map(str, steps))}"


def saving_changes_nothing(lab):
    """A run that saves is the run that never does."""
    complaints = []
    for model, split in (("fp16", "dp2 pp2"), ("llama", "tp2 zero3 dp2"), ("evaluated", ""), ("gpt", "dp2 offload.optimizer=nvme")):
        plain, _ = lab.record(model, split, "plain", fresh=True)
        saved, _ = lab.record(model, split, "run", "checkpoint.interval=3", fresh=True)
        complaints += [f"{model} {split}: {c}" for c in same_rows(saved, plain)]
    return complaints, ""


def stored(folder):
    """The datasets of a checkpoint as {path: array}."""
    found = {}
    with h5py.File(folder / "checkpoint.h5", "r") as file:
        file.visititems(lambda path, item: found.update({path: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def saves_behind_training(lab):
    """53: a checkpoint written while training goes on is the one that would have been written at once; what is left out is told; the end waits."""
    complaints, compared = [], 0
    for model, split in (("gpt", "dp2"), ("bf16", "dp2 zero3"), ("llama", "tp2"), ("gpt", "pp2 offload.optimizer=nvme")):
        every = "checkpoint.interval=1 checkpoint.keep=0"
        straight, _ = lab.record(model, split, "plain", every, fresh=True)
        behind, stdout = lab.record(model, split, "run", f"{every} checkpoint.asynchronous=true", fresh=True)
        complaints += [f"{model} {split}: {c}" for c in same_rows(behind, straight)]
        left_out = {int(step) for step in re.findall(r"checkpoint: that of step (\d+) is left out", stdout)}
        steps = {int(folder.name[5:]) for folder in (lab.folder / "run/checkpoints").iterdir()}
        if steps & left_out or steps | left_out != set(range(1, 11)) or 10 not in steps:
            complaints.append(f"{model} {split}: saved {steps}, left out {left_out}")
        for step in steps:
            ours, theirs = stored(lab.step("run", step)), stored(lab.step("plain", step))
            compared += 1
            if ours.keys() != theirs.keys() or not all(numpy.array_equal(ours[path], theirs[path]) for path in ours):
                complaints.append(f"{model} {split}: step {step} is another")
    return complaints, f"{compared} checkpoints"


def long_in_bf16(lab):
    """14: 300 steps in bf16 with a resume at 290 are 300 straight: no counter is kept in bf16."""
    changes = "train.steps=300 output.log_interval=100 train.global_batch_size=2 checkpoint.interval=145 checkpoint.keep=0 optimizer.beta2=0.999"
    straight, _ = lab.record("bf16", "", "run", changes, fresh=True, seconds=280)
    again, _ = lab.record("bf16", "", "run", f"{changes} checkpoint.resume={lab.step('run', 290)}")
    return same_rows(again, straight), ""


def rates(lab):
    """42: 20 steps with a warm-up of 4: whatever the step that a run goes on from, the list of learning rates is the same list."""
    changes = "train.steps=20 optimizer.warmup_steps=4 optimizer.lr_schedule=cosine checkpoint.interval=1 checkpoint.keep=0 train.global_batch_size=1"
    straight, _ = lab.record("tiny", "", "run", changes, fresh=True)
    complaints = []
    for step in range(1, 20) if FULL else (1, 3, 4, 5, 10, 19):
        again, _ = lab.record("tiny", "", "again", f"{changes} checkpoint.resume={lab.step('run', step)}", fresh=True)
        complaints += [f"from step {step}: {c}" for c in same_rows(again, straight, step + 1)]
    return complaints, f"{straight['steps/learning_rate'].tolist()[:6]}, ..."


# ---- any grid, stage, schedule, offload and precision reads any checkpoint ---------------------------------------------------

WRITERS = ("", "dp2 zero3", "tp2 pp2", "sp2 dp2 zero2", "pp2 interleaved v2 dp2", "tp3 offload.optimizer=cpu")
READERS = ("", "dp4 zero1", "dp2 tp2 zero3 offload.optimizer=nvme", "pp4 zero-bubble", "sp2 ulysses tp2 megatron-sp",
           "dp3 zero3 shard3 offload.parameters=cpu")


def differences(again, straight, step):
    """Of a run that went on after `step` on another grid: complaints unless its rows are those of `straight` to rounding; how far off the next is."""
    after = straight["steps/step"] > step
    complaints, worst = [], 0.0
    for name, allowed in (("loss", 1e-5), ("grad_norm", 1e-4)):
        ours, theirs = again[f"steps/{name}"], straight[f"steps/{name}"][after]
        difference = numpy.abs(ours - theirs) / numpy.abs(theirs)
        worst = max(worst, float(difference[0]))
        if difference[0] > allowed or difference.max() > 10 * allowed:
            complaints.append(f"{name} {ours}, straight on {theirs}")
    if not numpy.array_equal(again["steps/data_hash"], straight["steps/data_hash"][after]):
        complaints.append("other data")
    return complaints, worst


def pairs(lab, writer):
    """What `writer` saves, every reader goes on from (usually every other, in turn): the next loss, and those after, are the writer's to rounding."""
    model = "odd-llama" if "tp3" in writer else "llama"
    batch = "train.global_batch_size=12 train.steps=6 checkpoint.interval=3 checkpoint.keep=0"
    straight, _ = lab.record(model, writer, "run", batch, fresh=True)
    complaints, worst = [], 0.0
    readers = READERS if FULL else READERS[WRITERS.index(writer) % 2::2]
    for reader in readers:
        if model == "odd-llama":
            reader = reader.replace("pp4", "pp2").replace("tp2", "tp3").replace("dp2 tp3", "tp3").replace("sp2 ulysses ", "")
        again, _ = lab.record(model, reader, "again", f"{batch} checkpoint.resume={lab.step('run', 3)}", fresh=True)
        wrong, off = differences(again, straight, 3)
        complaints += [f"read by '{reader}': {w}" for w in wrong]
        worst = max(worst, off)
    return complaints, f"{len(readers)} readers; relative difference {worst:.1e} at the next step"


def empty_slices(lab):
    """19: norms of 8 elements over 8 and 5 ranks, where most slices are empty: saved, and gone on from by 3 ranks."""
    changes = "train.steps=6 checkpoint.interval=3 checkpoint.keep=0"
    complaints, worst = [], 0.0
    for writer, micro in (("dp8 zero1", 15), ("dp8 zero2", 15), ("dp8 zero3", 15), ("dp8 shard4 zero3", 15), ("dp5 zero3", 24)):
        straight, _ = lab.record("tiny-120", writer, "run", f"{changes} train.micro_batch_size={micro}", fresh=True)
        resume = f"train.micro_batch_size=40 checkpoint.resume={lab.step('run', 3)}"
        again, _ = lab.record("tiny-120", "dp3 zero3", "again", f"{changes} {resume}", fresh=True)
        wrong, off = differences(again, straight, 3)
        complaints += [f"saved by '{writer}': {w}" for w in wrong]
        worst = max(worst, off)
    return complaints, f"5 writers, read by 'dp3 zero3'; relative difference {worst:.1e} at the next step"


def signalled_before(lab):
    """A script that runs the trainer with SIGUSR1 waiting for it: a stop before the first step."""
    script = lab.folder / "signalled.py"
    script.write_text(f"""#!{sys.executable}
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
os.execv({str(lab.trainer.binary)!r}, [{str(lab.trainer.binary)!r}, *sys.argv[1:]])
""")
    script.chmod(0o755)
    return script


def first_step_of_all_grids(lab):
    """5: a run that is stopped before its first step saves step 0: the same parameters, by their checksums, on every grid."""
    sums = {}
    signalled = copy.copy(lab)
    signalled.trainer = Trainer(signalled_before(lab), lab.trainer.environment.get("MPIRUN"), lab.folder)
    for split in ("", "dp2 zero3", "tp2 pp2", "sp2", "dp2 offload.parameters=cpu"):
        result = signalled.train("llama", split, "zero", "output.overwrite=true checkpoint.resume=none")
        if result.exit_code != 75:
            return [f"{split}: exit 75 was due\n{show(result)}"], ""
        inspected = lab.trainer.run(["inspect", lab.step("zero", 0)])
        sums[split] = re.findall(r"checksum\S*\s+(\S+)", inspected.stdout) if inspected.exit_code == 0 else [show(inspected)]
    same = len({tuple(found) for found in sums.values()}) == 1 and len(sums[""]) > 0
    return [] if same else [f"checksums: {sums}"], ""


GROUPS = {
    "equal": [(f"{model}: {split} {changes}".strip(), functools.partial(equal, model=model, split=split, changes=changes, steps=steps))
              for model, split, changes, steps in EQUAL],
    "long": [(check.__name__, check) for check in (long_in_bf16, rates, saving_changes_nothing, saves_behind_training)],
    "pairs": [(f"written by '{writer}'", functools.partial(pairs, writer=writer)) for writer in WRITERS] +
             [(check.__name__, check) for check in (empty_slices, first_step_of_all_grids)],
    "terms": terms.CHECKS,
    "changes": resumed.CHECKS,
}


def main():
    arguments = parse_arguments(__doc__.splitlines()[0])
    checks = [check for group in arguments.group or GROUPS for check in GROUPS[group]]
    with tempfile.TemporaryDirectory(prefix="resume-") as folder:
        lab = Lab(Trainer(arguments.binary, arguments.mpirun, folder), folder)
        return report(arguments, [(name, functools.partial(check, lab)) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main())

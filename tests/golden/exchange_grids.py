"""Models that are exported and imported go on where the source was, on any grid: the same weights bit for bit, and the next step's loss.

The source saves on a grid of its own. Every batch is all of the data, so the loss of a step says nothing but what the weights are: the import's first
loss is the source's next one. Then it trains on, on several grids alike. Adapters are merged on request: the loss is that of the model with them.
"""
import functools
import math
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, h5py, numpy, parse_arguments, read_record, report, show  # noqa: E402

from hugging_face import read_parameters, read_tensors  # noqa: E402

TOLERANCE = 1e-5
SIZES = {"num_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 64, "seq_length": 16}
LLAMA = SIZES | {"num_key_value_heads": 2, "ffn_hidden_size": 48, "normalization": "rmsnorm", "activation": "swiglu", "position_embedding": "rope",
                 "bias": False, "tie_word_embeddings": False}
MODELS = {"gpt2": SIZES, "llama": LLAMA}
ALONE, TENSOR, PIPELINE, ZERO = ("grid.dp=1",), ("grid.tp=2",), ("grid.pp=2",), ("grid.dp=2", "sharding.zero_stage=3")
GRIDS = {"gpt2": [ALONE, TENSOR, PIPELINE, ZERO, ("grid.sp=2", "offload.optimizer=cpu")],
         "llama": [ALONE, ZERO, ("grid.tp=2", "grid.pp=2", "sharding.zero_stage=1")]}
SOURCE_GRID = ("grid.dp=2", "sharding.zero_stage=2")
SEQUENCES = 8


def input_of(trainer, model):
    tokens = trainer.folder / "tokens.u16"
    numpy.random.default_rng(1).integers(0, SIZES["vocab_size"], SEQUENCES * SIZES["seq_length"] + 1).astype("<u2").tofile(tokens)
    return {"model": model, "train": {"global_batch_size": SEQUENCES, "micro_batch_size": 2, "steps": 3},
            "optimizer": {"lr": 5e-3, "min_lr": 5e-3, "lr_schedule": "constant", "warmup_steps": 0},
            "data": {"format": "tokens", "train": [str(tokens)], "shuffle": False}, "device": {"threads": 1}}


def ranks_of(grid):
    return math.prod(int(change.split("=")[1]) for change in grid if change.startswith("grid."))


def losses(trainer, source, grid, *changes):
    result = trainer.train(source, ranks_of(grid), [*grid, *changes, "output.overwrite=true"], seconds=120)
    if result.exit_code != 0:
        raise RuntimeError(show(result))
    return read_record(result.output)["steps/loss"]


def run(trainer, *words, code=0):
    result = trainer.run(words)
    if result.exit_code != code:
        raise RuntimeError(f"{words}: exit {code} was due\n{show(result)}")
    return result.stdout + result.stderr


def saved_at_2(trainer, source):
    """The source's losses, and its checkpoint before the last of them."""
    saved = trainer.folder / "saved"
    return losses(trainer, source, SOURCE_GRID, "checkpoint.interval=2", f"checkpoint.directory={saved}"), saved / "step-00000002"


def goes_on(name, trainer):
    source = input_of(trainer, MODELS[name])
    straight, step = saved_at_2(trainer, source)
    run(trainer, "export", step, trainer.folder / "out")
    run(trainer, "import", trainer.folder / "out", trainer.folder / "base")
    imported = trainer.folder / "base" / "step-00000000"
    complaints = []
    if read_parameters(imported) != read_parameters(step):
        complaints.append("the imported weights are not those of the source, bit for bit")
    with h5py.File(imported / "checkpoint.h5") as file:
        if "optimizer" in file:
            complaints.append("an import has moments")
    said = run(trainer, "inspect", imported)
    if "step       0, 0 updates" not in said or "verified" not in said:
        complaints.append(f"inspect says {said}")
    found = {grid: losses(trainer, source, grid, f"checkpoint.resume={imported}") for grid in GRIDS[name]}
    again = losses(trainer, source, SOURCE_GRID, f"checkpoint.resume={trainer.folder / 'base'}")
    if again[0] != straight[2]:
        complaints.append(f"on the source's grid the first loss is {again[0]!r} and the source's next one {straight[2]!r}, allowed: the same bits")
    for grid, of_grid in found.items():
        if not numpy.allclose(of_grid, again, rtol=TOLERANCE, atol=0):
            complaints.append(f"{grid}: losses {of_grid}, and on the source's grid {again}")
    if len(again) != 3 or not again[-1] < again[0]:  # the second may be above: moments begin anew
        complaints.append(f"it does not train on: {again}")
    run(trainer, "export", imported, trainer.folder / "out-again")
    if read_tensors(trainer.folder / "out-again") != read_tensors(trainer.folder / "out"):
        complaints.append("exported again it is something else")
    return complaints, f"first loss {again[0]:.7f} on {len(found) + 1} grids"


def adapters(name, trainer):
    """Refused without --merge-lora; with it the loss is the adapted model's, and the weights are W + (alpha / rank) B A."""
    lora = {"rank": 3, "alpha": 5, "targets": ["q", "o", "mlp"]}
    source = input_of(trainer, MODELS[name] | {"lora": lora})
    source["optimizer"] |= {"lr": 5e-2, "min_lr": 5e-2}  # so that what they have learnt shows
    straight, step = saved_at_2(trainer, source)
    complaints, out = [], trainer.folder / "out"
    said = run(trainer, "export", step, out, code=2)
    if "has adapters (model.lora.rank 3)" not in said or "--merge-lora" not in said or out.exists():
        complaints.append(f"said {said}")
    run(trainer, "export", step, out, "--merge-lora")
    run(trainer, "import", out, trainer.folder / "merged")
    merged = trainer.folder / "merged" / "step-00000000"
    first = losses(trainer, input_of(trainer, MODELS[name]), ALONE, f"checkpoint.resume={merged}")[0]
    if abs(first / straight[2] - 1) > TOLERANCE or abs(straight[2] / straight[0] - 1) < 1e-3:
        complaints.append(f"merged the loss is {first}, the adapted model's {straight[2]}, and without what the adapters have learnt {straight[0]}")
    with h5py.File(step / "checkpoint.h5") as before, h5py.File(merged / "checkpoint.h5") as after:
        adapted = 0
        for weight, found in after["parameters"].items():
            w = before["parameters"][weight][()]
            a_name = weight.removesuffix("weight") + "lora_a"
            if a_name in before["parameters"]:
                a, b = (before["parameters"][a_name[:-1] + letter][()].astype("f8") for letter in "ab")
                w = (w + 5 / 3 * (b.reshape(-1, 3) @ a.reshape(3, -1)).reshape(w.shape)).astype("f4")
                adapted += 1
            if not numpy.allclose(found[()], w, rtol=1e-6, atol=1e-9):
                complaints.append(f"{weight} is something else")
    due = {"gpt2": 4 * 4, "llama": 4 * 5}[name]
    if adapted != due:
        complaints.append(f"{adapted} matrices are adapted, due {due}")
    return complaints, f"loss {first:.7f}, {abs(first / straight[2] - 1):.1e} off the adapted model's"


CHECKS = [*[(f"{name} goes on", functools.partial(goes_on, name)) for name in MODELS],
          *[(f"{name} with adapters", functools.partial(adapters, name)) for name in MODELS]]


def main():
    arguments = parse_arguments(__doc__)

    def in_a_fresh_folder(check):
        with tempfile.TemporaryDirectory(prefix="exchange-") as folder:
            return check(Trainer(arguments.binary, arguments.mpirun, folder))

    return report(arguments, [(name, functools.partial(in_a_fresh_folder, check)) for name, check in CHECKS])


if __name__ == "__main__":
    sys.exit(main())

"""The table of runs that must be refused or must stop, each with its exit code and the words its message owes the user.

Words are regular expressions; each must be found on stderr, and no line may stand there twice, since a job complains once and
not once per rank. Numbers of case reports from the field stand in the names.
"""
import dataclasses

DONE, REFUSED, NO_MEMORY, DIVERGED, IO_FAILED, STOPPED = 0, 2, 3, 4, 5, 75

MODEL = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 256, "vocab_size": 256, "seq_length": 32}
INPUT = {
    "model": MODEL,
    "train": {"global_batch_size": 8, "micro_batch_size": 1, "steps": 3},
    "optimizer": {"lr": 1e-3, "min_lr": 0, "lr_schedule": "constant", "warmup_steps": 0},
    "device": {"threads": 1},
    "data": {"format": "text", "train": ["counting.txt"]},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: INPUT (or `source`, a whole file's text) with `changes` on `ranks`."""

    name: str
    ranks: int
    changes: str
    exit_code: int = REFUSED
    words: tuple = ()
    source: str = ""
    steps: int | None = None  # that the record must have


def number(value):
    return rf"(?<![\d.]){value}(?![\d.]\d)(?!\d)"


def refused(name, ranks, changes, *words):
    """`words` may be ints, which must stand in the message as numbers."""
    return Case(name, ranks, changes, REFUSED, tuple(number(word) if isinstance(word, int) else word for word in words))


CASES = {
    "grid": [
        *[refused(f"27 grid of 4 on {ranks}", ranks, "grid.dp=2 grid.tp=2", 4, ranks) for ranks in (1, 3, 5, 8)],
        refused("27 tp 3 does not divide 8", 8, "grid.tp=3 model.num_attention_heads=3 model.hidden_size=60", 3, 8),
        refused("26 pipeline of 2 on 3", 3, "grid.pp=2", 2, 3),
        Case("26 pipeline of 2 on 2", 2, "grid.pp=2", DONE, steps=3),
        refused("30 heads by tp", 4, "model.num_attention_heads=6 model.hidden_size=96 grid.tp=4", 6, 4),
        refused("30 hidden by heads", 1, "model.hidden_size=62", 62, 4),
        refused("30 odd head with rotary", 1, "model.hidden_size=60 model.position_embedding=rope", 15),
        refused("31 sequence by sp", 4, "model.seq_length=30 grid.sp=4", 30, 4),
        refused("31 sequence by zigzag", 4, "model.seq_length=36 grid.sp=4", 36, 8),
        refused("7 shards that do not divide dp", 4, "grid.dp=4 sharding.zero_stage=2 sharding.shard_size=3", 3, 4, "shard_size"),
        refused("33 heads by ulysses", 4, "model.num_attention_heads=6 model.hidden_size=96 grid.sp=4 sequence.method=ulysses",
                6, 4, "ring"),
    ],
    "batch": [
        refused("28 three that disagree", 2, "train.micro_batch_size=2 train.gradient_accumulation_steps=3 grid.dp=2", 8, 12),
        refused("28 global 10 micro 4 dp 2", 2, "train.global_batch_size=10 train.micro_batch_size=4 grid.dp=2", 10, 8),
        refused("28 zero", 1, "train.micro_batch_size=0", "micro_batch_size", 0),
        refused("28 negative", 1, "train.global_batch_size=-8", "global_batch_size", -8),
        refused("23 eight in three", 1, "train.micro_batch_size=auto train.gradient_accumulation_steps=3", 8, 3),
        refused("11 negative clip", 1, "train.clip_grad=-1", "clip_grad", -1),
        refused("65 min_lr above lr", 1, "optimizer.min_lr=0.1", r"min_lr", r"0\.1"),
    ],
    "input": [
        refused("unknown key, with its place", 1, "modle.hidden_size=64", "modle", "model"),
        refused("unknown key, with the name meant", 1, "grid.tensor_model_parallel_size=2", "tensor_model_parallel_size", r"\btp\b"),
        refused("wrong type", 2, "model.num_layers=four", "num_layers", "four"),
        refused("a byte above the vocabulary", 1, "model.vocab_size=50", r"counting\.txt", 50),
        refused("data missing", 2, "data.train=[missing.txt]", r"missing\.txt"),
        Case("empty file", 1, "", REFUSED, (r"run\.yaml",), source="# nothing here\n"),
        Case("tab", 1, "", REFUSED, (r"run\.yaml:2:\d+",), source="model:\n\tnum_layers: 2\n"),
        Case("all mistakes at once", 2, "", REFUSED, (r"run\.yaml:2:3", r"run\.yaml:4:3"),
             source="model:\n  num_layerz: 2\ntrain:\n  stepz: 2\n"),
    ],
    "build": [
        *[refused(change, 1, change, "not in this build", change.split("=")[0].split(".")[-1])
          for change in ("device.backend=cuda", "train.deterministic=grid")],
    ],
    "memory": [
        Case("67 over budget", 2, "device.memory_limit=1MiB", NO_MEMORY, (r"MiB|bytes",)),
        Case("67 over budget at stage 3", 2, "grid.dp=2 sharding.zero_stage=3 device.memory_limit=1MiB", NO_MEMORY, (r"MiB|bytes",)),
    ],
    "diverge": [
        Case("17 stop", 8, "grid.tp=2 grid.pp=2 train.precision=bf16 train.clip_grad=0 optimizer.lr=1e30 train.steps=20",
             DIVERGED, (r"step \d+.*(loss|grad)|(loss|grad).*step \d+",)),
        Case("17 stop, fp32", 4, "grid.sp=2 train.clip_grad=0 optimizer.lr=1e30 train.steps=20",
             DIVERGED, (r"step \d+.*(loss|grad)|(loss|grad).*step \d+",)),
        Case("17 skip", 8, "grid.tp=2 grid.pp=2 train.precision=bf16 train.clip_grad=0 optimizer.lr=1e30 train.steps=20 "
             "train.on_nan=skip", DONE, (r"step \d+.*skipped",), steps=20),
        Case("17 stop, fp16", 8, "grid.tp=2 grid.pp=2 train.precision=fp16 train.clip_grad=0 optimizer.lr=1e30 train.steps=20",
             DIVERGED, (r"step \d+: the loss is",)),
        Case("17 skip, fp16", 4, "grid.pp=2 train.precision=fp16 train.clip_grad=0 optimizer.lr=1e30 train.steps=8 train.on_nan=skip", DONE,
             (r"step \d+: the loss is nan; the update is skipped",), steps=8),
        Case("16 from 2^30", 8, "grid.tp=2 grid.pp=2 train.precision=fp16 loss_scale.initial=1073741824 train.steps=12", DONE, steps=12),
        *[Case(f"16 scale at its minimum, on_nan {policy}", 8, "grid.tp=2 grid.pp=2 train.precision=fp16 loss_scale.initial=1073741824 "
               f"loss_scale.minimum=536870912 train.on_nan={policy}", DIVERGED, (r"step 2: gradients overflow at loss scale 536870912, .*minimum",))
          for policy in ("stop", "skip")],
    ],
}

"""What is measured: the inputs of the bench, and how much each matrix product counts in a step of GPT-2 124M.

Inputs are dicts as tests/trainer.py writes them. Nothing here runs anything.
"""

GPT2_124M = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "ffn_hidden_size": 3072, "vocab_size": 50257,
             "seq_length": 512}
TINY = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 256, "vocab_size": 503, "seq_length": 64}
QUICKSTART = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "vocab_size": 256, "seq_length": 128}

# Two ranks against one: the batch, and the ways of the two with the least share of the one rank's tokens/s that is wanted of each.
GRIDS = {
    "dp": ({"micro_batch_size": 4, "global_batch_size": 8}, {"": 0.90}),
    "tp": ({"micro_batch_size": 4, "global_batch_size": 4}, {"": 0.85}),
    "sp": ({"micro_batch_size": 4, "global_batch_size": 4}, {"": 0.85}),
    "pp": ({"micro_batch_size": 1, "global_batch_size": 16}, {"pipeline.schedule=zero-bubble": 0.85, "pipeline.schedule=1f1b": None}),
}


def name(options):
    """Of what gpt2() gives, for the table."""
    return "tiny GPT-2" if options.quick else "GPT-2 124M"


def gpt2(options, precision, train=()):
    """GPT-2 124M at micro batch 4 and sequence 512 (with --quick, a model of its kind that takes no time)."""
    batch = {"micro_batch_size": 4, "global_batch_size": 4} | dict(train)
    return {"model": TINY if options.quick else GPT2_124M, "train": batch | {"steps": options.steps + 1, "precision": precision},
            "optimizer": {"lr": 1e-4, "min_lr": 1e-5, "warmup_steps": 0}, "data": {"format": "synthetic"}}


def small(steps=50):
    """The quickstart's model: small matrices, so that what is not arithmetic shows most."""
    return {"model": QUICKSTART, "train": {"micro_batch_size": 4, "global_batch_size": 16, "steps": steps},
            "data": {"format": "synthetic"}, "output": {"log_interval": 10}}


def count_in_step(row):
    """How often a step of GPT-2 124M at 2048 tokens makes the product of a row of `bench gemm`."""
    m, n, k = sorted(int(x) for x in row["shape"].split()[0].split("x"))
    layers = GPT2_124M["num_layers"]
    return {(768, 768, 2048): 4 * layers, (768, 2048, 3072): layers, (768, 2048, 50257): 1}[m, n, k]


def product_rate(rows, precision):
    """FLOP/s of all matrix products of a step together, from the rows of one `bench gemm`."""
    flops = seconds = 0.0
    for row in rows:
        if row["precision"] == precision:
            count = count_in_step(row)
            m, n, k = (int(x) for x in row["shape"].split()[0].split("x"))
            flops += count * 2.0 * m * n * k
            seconds += count * row["seconds"]
    return flops / seconds

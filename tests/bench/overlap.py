"""What of a data-parallel step's communication is hidden, by comm.bucket_size and comm.overlap: the section `overlap` of run.py.

Two ranks. In the model `long` a unit's backward takes far longer than its gradients need on the way, so all but the last bucket can be hidden; in
`short` neither is: small buckets pay latency, large ones start late. Where two ranks leave no core to their moves, hiding them wins no time: what
arithmetic loses beside them is in its rate. A step's time is the median of a run's steps but the first.
"""
import statistics

import shapes

SIZES = ("1", "1MiB", "4MiB", "25MiB", "100MiB", "1GiB")  # 1: every unit by itself
MODELS = {  # with the micro-batch and the steps
    "long": ({"num_layers": 24, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 256, "seq_length": 128}, 4, 9),
    "short": ({"num_layers": 24, "hidden_size": 96, "num_attention_heads": 4, "vocab_size": 256, "seq_length": 64}, 1, 41),
}
QUICK = {"num_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "vocab_size": 64, "seq_length": 32}


def source(bench, model, micro, steps):
    steps = bench.options.steps + 1 if bench.options.quick else max(steps, bench.options.steps + 1)
    return {"model": QUICK if bench.options.quick else model, "grid": {"dp": 2}, "data": {"format": "synthetic"},
            "train": {"micro_batch_size": micro, "global_batch_size": 2 * micro, "steps": steps}, "output": {"log_interval": 100}}


def seconds_per_step(record):
    return statistics.median(record["steps/seconds"][1:])


def hidden(record):
    """Per cent of the time in which gradients were under way, mean of ranks, in which ranks did something else."""
    dp = [i for i, name in enumerate(record["wire/axes"]) if name == b"dp"]
    busy, exposed = (record[f"wire/{what}"][1:][:, :, dp].sum() for what in ("busy", "exposed"))
    return 100 * max(0.0, 1 - exposed / busy)


def rate_beside(record):
    """Per cent of its rate that arithmetic kept while gradients were under way; None where none was."""
    beside, alone = (record[f"wire/compute_{what}"][1:].sum() for what in ("beside", "alone"))
    return 100 * alone / beside if beside > 0 else None


def exposed(record):
    """Seconds of a step that a rank waits for gradients: the median step, the mean of ranks."""
    dp = [name.decode() for name in record["time/categories"]].index("exposed_dp")
    return statistics.median(record["time/seconds"][1:, :, dp].mean(axis=1))


def measure_saved(bench):
    """Of the time in which a step does nothing but the MPI library's all-reduces, what our own and overlap save of the step."""
    name = shapes.name(bench.options)
    inputs = shapes.gpt2(bench.options, "fp32", {"micro_batch_size": 1, "global_batch_size": 2})
    inputs["model"] = inputs["model"] | {"seq_length": min(256, inputs["model"]["seq_length"])}
    inputs["grid"], inputs["train"]["steps"] = {"dp": 2}, max(5, inputs["train"]["steps"])
    saved = []
    for _ in bench.repetitions():
        native = bench.train(inputs, 2, 1, ["comm.algorithm=native", "comm.overlap=false"])
        ours = bench.train(inputs, 2, 1)
        saved.append((seconds_per_step(native) - seconds_per_step(ours)) / exposed(native))
    bench.row(f"{name}, dp 2, micro-batch 1 of 256: saved of native all-reduce time", saved, "", 0.5,
              note=f"step {seconds_per_step(native):.2f} s, of which {exposed(native):.2f} s; ours {seconds_per_step(ours):.2f} s")


def measure(bench):
    measure_saved(bench)
    ways = {f"bucket_size {size}": [f"comm.bucket_size={size}"] for size in SIZES}
    ways |= {"bucket_size auto": ["comm.bucket_size=auto"], "no overlap": ["comm.overlap=false"]}
    for name, (model, micro, steps) in MODELS.items():
        inputs = source(bench, model, micro, steps)
        records = {way: [] for way in ways}
        for _ in bench.repetitions():
            for way, overrides in ways.items():
                records[way].append(bench.train(inputs, 2, 1, overrides))
        if name == "long":
            bench.row(f"overlap, {name}: most hidden, of all sizes", [max(map(hidden, runs)) for runs in zip(*records.values())], "%", 90)
        best = [min(map(seconds_per_step, runs)) for runs in zip(*(records[way] for way in ways if way.endswith(SIZES)))]
        for way, runs in records.items():
            auto = way == "bucket_size auto"
            taken = runs[-1]["choices"]["comm.bucket_size"].split(",")[0] if auto else ""
            bench.row(f"overlap, {name}: {way}: step time / the best size's", [seconds_per_step(r) / b for r, b in zip(runs, best)], "",
                      1.05 if auto else None, least=False, note=taken)
            bench.row(f"overlap, {name}: {way}: hidden", [hidden(r) for r in runs], "%")
            rates = [rate for rate in map(rate_beside, runs) if rate is not None]
            if rates:
                bench.row(f"overlap, {name}: {way}: rate of arithmetic beside moves", rates, "%")

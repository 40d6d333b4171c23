"""What it costs not to keep everything on the device: ZeRO stages, recompute, offload, and a model that is four times its budget.

Step times as ratios to the same run with everything at home, which is run in turn with them.
"""
import shutil
import tempfile

import shapes

STEP_TIME = "step time"
# A model whose training state, 16 bytes a parameter, is what it is about: small vocabulary, short sequences.
DEEP = {"num_layers": 24, "hidden_size": 768, "num_attention_heads": 12, "ffn_hidden_size": 3072, "vocab_size": 8192, "seq_length": 256}
STATE_BYTES = 16  # a parameter, fp32: weight, gradient, two moments


def seconds_per_token(record):
    """Of the steps but the first."""
    return record["steps/seconds"][1:].sum() / record["steps/tokens"][1:].sum()


def exposed(record):
    """The share of the step's time, on average over ranks, that waits for copies or the disk."""
    categories = [name.decode() for name in record["time/categories"]]
    seconds = record["time/seconds"][1:]
    waits = sum(seconds[:, :, categories.index(name)].sum() for name in ("exposed_copy", "exposed_disk"))
    return waits / seconds.sum()


def peak(record, tier="device"):
    """Bytes of the fullest rank."""
    tiers = [name.decode() for name in record["memory/tiers"]]
    return int(record["memory/measured_peak"][:, tiers.index(tier)].sum(axis=1).max())


def ratios(bench, name, source, ways, ranks=1, goals=()):
    """Rows of step time of each way (label: overrides) against the first, and the records of the last repetition by label."""
    threads = 2 // ranks
    seconds, records = {label: [] for label in ways}, {}
    for _ in bench.repetitions():
        for label, overrides in ways.items():
            records[label] = bench.train(source, ranks, threads, overrides)
            seconds[label].append(seconds_per_token(records[label]))
    base, *others = ways
    for label in others:
        goal = dict(goals).get(label)
        bench.row(f"{name}: {STEP_TIME}, {label} / {base}", [a / b for a, b in zip(seconds[label], seconds[base])], "", goal, least=False)
    return records


def measure_zero(bench):
    source = shapes.gpt2(bench.options, "fp32", shapes.GRIDS["dp"][0])
    ways = {f"stage {stage}": ["grid.dp=2", f"sharding.zero_stage={stage}"] for stage in range(4)}
    ratios(bench, f"{shapes.name(bench.options)} fp32 dp 2", source, ways, 2, {"stage 3": 1.15}.items())


def measure_recompute(bench):
    source = shapes.gpt2(bench.options, "fp32")
    ways = {granularity: [f"recompute.granularity={granularity}"] for granularity in ("none", "selective", "full")}
    name = f"{shapes.name(bench.options)} fp32 recompute"
    records = ratios(bench, name, source, ways, goals={"selective": 1.08, "full": 1.36}.items())
    for granularity in ("selective", "full"):
        bench.row(f"{name}: {granularity}, device memory saved", [(peak(records["none"]) - peak(records[granularity])) / 2**20], "MiB")


def measure_offload(bench):
    """The optimizer elsewhere, 16 micro-batches a step."""
    source = shapes.gpt2(bench.options, "fp32", {"micro_batch_size": 1, "global_batch_size": 16})
    with tempfile.TemporaryDirectory(prefix="bench-", dir=bench.options.disk or bench.folder) as disk:
        ways = {"none": [], "cpu": ["offload.optimizer=cpu"], "nvme": ["offload.optimizer=nvme", f"offload.nvme_path={disk}"]}
        name = f"{shapes.name(bench.options)} fp32, 16 micro-batches, optimizer offloaded"
        records = ratios(bench, name, source, ways, goals={"cpu": 1.10, "nvme": 1.10}.items())
        for way in ("cpu", "nvme"):
            bench.row(f"{name} to {way}: exposed copies and disk", [100 * exposed(records[way])], "% of step")


def measure_budget(bench):
    """A model whose states are four times device.memory_limit, from disk, beside the same without a limit."""
    source = shapes.gpt2(bench.options, "fp32", {"micro_batch_size": 1, "global_batch_size": 4})
    source["model"] = shapes.TINY | {"num_layers": 12} if bench.options.quick else DEEP
    free = bench.train(source)
    parameters = int(free["memory/measured_peak"][0, 0, 0]) // 4  # the weights, fp32, whole on the one rank
    limit = parameters * STATE_BYTES // 4
    if shutil.disk_usage(bench.options.disk or bench.folder).free < 2 * parameters * STATE_BYTES:
        print("four times the budget: skipped, the disk is too full")
        return
    with tempfile.TemporaryDirectory(prefix="bench-", dir=bench.options.disk or bench.folder) as disk:
        away = ["offload.optimizer=nvme", "offload.parameters=nvme", "offload.gradients=cpu", f"offload.nvme_path={disk}"]
        if not bench.options.quick:  # a tiny model's scratch memory is larger than its state
            away.append(f"device.memory_limit={limit}")
        name = f"{parameters / 1e6:.0f} M parameters, {parameters * STATE_BYTES / 2**30:.2f} GiB of states"
        records = ratios(bench, name, source, {"no limit": [], f"device.memory_limit {limit / 2**20:.0f} MiB": away})
    free, bound = records.values()
    same = (free["steps/loss"] == bound["steps/loss"]).all()
    bench.row(f"{name}: device peak without a limit", [peak(free) / 2**20], "MiB")
    note = "the same losses" if same else "OTHER LOSSES"
    bench.row(f"{name}: device peak within the limit", [peak(bound) / 2**20], "MiB", limit / 2**20, least=False, note=note)
    bench.row(f"{name}: exposed copies and disk", [100 * exposed(bound)], "% of step")

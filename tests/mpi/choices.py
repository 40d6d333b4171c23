"""What grid.order and comm.bucket_size take where they are `auto`: what runs is in the record with its reason, and the same written out gives the
same bits."""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, check_ledgers, parse_arguments, read_record, report, show, write_counting_text  # noqa: E402

INPUT = {"model": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 256, "vocab_size": 256, "seq_length": 32},
         "train": {"global_batch_size": 16, "micro_batch_size": 1, "steps": 4}, "device": {"threads": 1},
         "data": {"format": "text", "train": ["counting.txt"]}}
AXES = ("dp", "tp", "pp", "sp")  # as the record has coordinates


def value(record, section, key):
    """A key's value in the resolved input, as text."""
    lines = record["config"]["yaml"].splitlines()
    begin = lines.index(f"{section}:")
    return next(line.split(": ", 1)[1] for line in lines[begin:] if line.startswith(f"  {key}: "))


def run(lab, ranks, *overrides, source=INPUT):
    result = lab.train(source, ranks, [*overrides, "output.overwrite=true", "checkpoint.resume=none"], seconds=240)
    if result.exit_code != 0:
        raise RuntimeError(show(result))
    return read_record(result.output), result.stdout


def same(record, other, what):
    names = ("steps/loss", "steps/grad_norm")
    return [f"{name} differs {what}: {record[name]} and {other[name]}" for name in names if (record[name] != other[name]).any()]


def near(record, axis, per_node):
    """Complaints unless the ranks of each pretended node differ along this axis alone."""
    at = record["grid/coordinates"]
    nodes = at.reshape(-1, per_node, len(AXES))
    apart = [a for i, a in enumerate(AXES) if (nodes[:, :, i].min(axis=1) != nodes[:, :, i].max(axis=1)).any()]
    return [] if apart == [axis] else [f"on a node ranks differ along {apart}, not {axis} alone: {at.tolist()}"]


def order(lab, ranks, axis, *grid, nodes=2):
    """The order that is taken puts `axis` inside the nodes, is told and recorded, and written out gives the same bits."""
    grid = [*grid, f"grid.pretend_nodes={nodes}"]
    record, said = run(lab, ranks, *grid, "grid.order=auto")
    taken = value(record, "grid", "order")
    complaints = near(record, axis, ranks // nodes) + check_ledgers(record)
    if record["choices"].get("grid.order", "").split(",")[0] != taken or f"grid.order auto: {taken}, " not in said:
        complaints.append(f"{taken} was taken, the record has {record['choices']}\n{said}")
    written, _ = run(lab, ranks, *grid, f"grid.order={taken}")
    if written["choices"]:
        complaints.append(f"nothing was left open, and the record says why: {written['choices']}")
    return complaints + same(record, written, f"from {taken} written out"), taken


def gone_on_with(lab):
    """A run that goes on keeps the order and the size that it began with, also on nodes that would have had another; on another grid it chooses."""
    open_keys = ["grid.order=auto", "comm.bucket_size=auto", "grid.tp=2", "train.global_batch_size=4", "sharding.zero_stage=3",
                 "checkpoint.interval=2"]  # a batch so small that dp sends more than tp

    def train(*overrides):
        result = lab.train(INPUT, 4, [*open_keys, *overrides], seconds=240)
        if result.exit_code != 0:
            raise RuntimeError(show(result))
        return read_record(result.output), result

    begun, _ = train("grid.pretend_nodes=2", "train.steps=2", "output.overwrite=true")
    record, result = train("grid.pretend_nodes=1")
    complaints = near(record, "dp", 2)
    if record["steps/step"].tolist() != [1, 2, 3, 4] or (result.output / "run-2.h5").exists():
        complaints.append(f"the record has steps {record['steps/step']}")
    for section, key in (("grid", "order"), ("comm", "bucket_size")):
        was, now = value(begun, section, key), value(record, section, key)
        if was != now or f"{section}.{key} auto: {was}, as the run has chosen" not in result.stdout:
            complaints.append(f"{section}.{key} was {was}, and is {now}\n{result.stdout}")
    if "grid.order is" in result.stdout:
        complaints.append(f"told of as a difference\n{result.stdout}")
    _, result = train("grid.pp=2", "train.steps=6")
    if "as the run has chosen" in result.stdout:
        complaints.append(f"on another grid too\n{result.stdout}")
    return complaints, value(begun, "grid", "order")


def bucket(lab, *grid):
    """The size that is taken is a size, and the bits are those of every other one; the resolved input, fed back, is taken as it is."""
    record, said = run(lab, 2, *grid, "comm.bucket_size=auto")
    taken = value(record, "comm", "bucket_size")
    complaints = check_ledgers(record)
    if record["choices"].get("comm.bucket_size", "").split(",")[0] != taken or f"comm.bucket_size auto: {taken}, " not in said:
        complaints.append(f"{taken} was taken, the record has {record['choices']}\n{said}")
    for size in (1, "1GiB"):
        other, _ = run(lab, 2, *grid, f"comm.bucket_size={size}")
        complaints += same(record, other, f"between bucket_size {taken} and {size}")
    fed_back, _ = run(lab, 2, source=record["config"]["yaml"])
    if fed_back["config"]["yaml"] != record["config"]["yaml"]:
        complaints.append("the resolved input, fed back, resolves to another")
    return complaints + same(record, fed_back, "from the resolved input fed back"), taken


def unseen(lab):
    """A plan knows no machine, and says what it assumed; what it resolves leaves nothing open."""
    open_keys = ["grid.order=auto", "comm.bucket_size=auto", "grid.tp=2", "--ranks", "16"]
    (lab.folder / "run.yaml").write_text(json.dumps(INPUT))
    said, resolved, plan = (lab.run(["plan", "run.yaml", *open_keys, *option]) for option in ([], ["--resolved"], ["--json"]))
    if said.exit_code or resolved.exit_code or plan.exit_code:
        raise RuntimeError(show(said) + show(resolved) + show(plan))
    complaints = [f"{key} is not told with what was assumed\n{said.stdout}" for key in ("grid.order", "comm.bucket_size")
                  if not any(line.startswith(f"{key} auto: ") and "assumed" in line for line in said.stdout.splitlines())]
    if "order: auto" in resolved.stdout or "bucket_size: auto" in resolved.stdout:
        complaints.append(f"left open:\n{resolved.stdout}")
    return complaints + ([] if json.loads(plan.stdout)["ranks"] == 16 else ["the plan is of other ranks"])


def main():
    arguments = parse_arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="choices-") as folder:
        write_counting_text(pathlib.Path(folder) / "counting.txt")
        lab = Trainer(arguments.binary, arguments.mpirun, folder)
        lab.environment["QUADRILLE_COLLECTIVES"] = ""  # whatever was measured here, the links decide
        return report(arguments, [
            ("order: tp inside nodes", lambda: order(lab, 4, "tp", "grid.tp=2")),
            ("order: sp, which sends more, inside nodes", lambda: order(lab, 8, "sp", "grid.tp=2", "grid.sp=2", "train.steps=2", nodes=4)),
            ("order: shards inside nodes, two copies", lambda: order(lab, 4, "dp", "sharding.shard_size=2", "sharding.zero_stage=3",
                                                                     "comm.algorithm=hierarchical")),
            ("gone on with", lambda: gone_on_with(lab)),
            ("bucket size", lambda: bucket(lab)),
            ("bucket size, zero stage 2", lambda: bucket(lab, "sharding.zero_stage=2")),
            ("plan", lambda: (unseen(lab), ""))])


if __name__ == "__main__":
    sys.exit(main())

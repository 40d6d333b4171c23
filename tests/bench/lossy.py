"""Compressed and stale gradients in a run of their own: losses, speed and bytes of each way beside the exact one, as a table in Markdown.

    python3 tests/bench/lossy.py --binary build/quadrille [--steps 500] [--ranks 2] [--repeat 3] [--way NAME]... [OVERRIDE...]

A small GPT learns the project's own sources, byte by byte, on ranks of dp with one thread each. Ways: none (exact sums), bf16, fp16, topk, qsgd and
stale; by default all. They run in turn within each repetition, so that a disturbance meets all of them. Losses are those of the first repetition
(they are the same in all), tokens/s is the median over the repetitions of each run's median step, `exposed` the share of a step that waits for
gradients. Asserts nothing.
"""
import argparse
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, numpy, read_record, show  # noqa: E402

WAYS = {"none": [], **{method: [f"comm.compression.method={method}"] for method in ("bf16", "fp16", "topk", "qsgd")},
        "stale": ["comm.staleness=1"]}
SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"
COLUMNS = ("way", "loss at step {middle}", "at step {last}", "held out", "tokens/s", "of none", "exposed", "compression", "bytes a step and rank")


def source(steps):
    """The input: three million parameters, byte tokens, a tenth of the corpus held out."""
    return {"model": {"num_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 256, "seq_length": 128},
            "train": {"global_batch_size": 16, "micro_batch_size": 4, "steps": steps, "seed": 1234},
            "optimizer": {"lr": 1e-3, "min_lr": 1e-4, "lr_schedule": "cosine", "warmup_steps": 20},
            "device": {"threads": 1}, "evaluation": {"interval": steps, "batches": 16},
            "data": {"format": "text", "train": [str(SOURCES / "**/*.cpp"), str(SOURCES / "**/*.hpp")], "split": "90,10"}}


def share(record, names):
    """Of the steps' time on all ranks, what these categories take."""
    categories = [name.decode() for name in record["time/categories"]]
    seconds = record["time/seconds"][1:]
    return seconds[:, :, [categories.index(name) for name in names]].sum() / seconds.sum()


def speed(record):
    """Tokens per second of the median step, the first not counted."""
    return numpy.median(record["steps/tokens"][1:] / record["steps/seconds"][1:])


def mean_loss(record, step):
    """Over the ten steps that end there: one step's batch is noise."""
    return record["steps/loss"][max(0, step - 10):step].mean()


def row(way, records, exact, steps):
    first = records[0]
    speeds, theirs = [speed(r) for r in records], [speed(r) for r in exact]
    spread = f" ({min(speeds):.0f} to {max(speeds):.0f})" if len(speeds) > 1 else ""
    return (way, f"{mean_loss(first, steps // 5):.4f}", f"{mean_loss(first, steps):.4f}", f"{first['evaluation/loss'][-1]:.4f}",
            f"{statistics.median(speeds):.0f}{spread}", f"{statistics.median(a / b for a, b in zip(speeds, theirs)):.2f} ×",
            f"{100 * statistics.median(share(r, ['exposed_dp']) for r in records):.1f} %",
            f"{100 * statistics.median(share(r, ['compression']) for r in records):.1f} %", f"{int(first['wire/sent'].sum(axis=1).max()):,}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/quadrille")
    parser.add_argument("--mpirun")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("overrides", nargs="*", help="section.key=value, for all ways")
    options = parser.parse_intermixed_args()
    ways = options.way or list(WAYS)
    ways = ["none", *(way for way in ways if way != "none")]
    records = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="lossy-") as folder:
        trainer = Trainer(options.binary, options.mpirun, folder)
        for _ in range(options.repeat):
            for way in ways:
                overrides = [f"grid.dp={options.ranks}", "output.overwrite=true", "output.log_interval=50", *options.overrides, *WAYS[way]]
                result = trainer.train(source(options.steps), options.ranks, overrides, seconds=7200)
                if result.exit_code != 0:
                    raise SystemExit(f"{way}: {show(result)}")
                records[way].append(read_record(result.output))
                print(f"{way}: {result.seconds:.0f} s", file=sys.stderr, flush=True)
    print("| " + " | ".join(COLUMNS).format(middle=options.steps // 5, last=options.steps) + " |")
    print("| " + " | ".join("---" for _ in COLUMNS) + " |")
    for way in ways:
        print("| " + " | ".join(row(way, records[way], records["none"], options.steps)) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

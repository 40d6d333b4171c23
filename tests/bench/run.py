"""Measures the speeds that Quadrille promises, and prints a table of them beside their goals.

    python3 tests/bench/run.py --binary build/quadrille [--torch PYTHON] [--only SECTION]... [--quick]

Sections: gemm (matrix products), gpt2 (GPT-2 124M against those products and against PyTorch), grids (two ranks of one thread against
one rank of two), zero (the training state cut over two ranks against whole on both), recompute (against none), offload (of the
optimizer), budget (states four times device.memory_limit, from disk), overhead (the executor's share of a step), start (of the
quickstart, up to its first step), plan (of Llama-3 405B on 16,384 ranks), collectives (against the MPI library's own), overlap (of
gradients with arithmetic, by bucket size), storage (the nvme tier against fio), save (of a checkpoint, against fio).

What is compared is run in turn, so that a disturbance meets both sides; a ratio is made within each repetition and the table has
the median. Nothing here asserts: times on a shared machine are reported, never a reason to fail. --quick is a smoke test: tiny
models, one repetition, figures without meaning.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, read_record, show  # noqa: E402

import collectives  # noqa: E402
import homes  # noqa: E402
import overlap  # noqa: E402
import saves  # noqa: E402
import shapes  # noqa: E402
import start  # noqa: E402
import storage  # noqa: E402
from torch_side import TorchSide  # noqa: E402

THREADS = 2  # of the machine that a measurement uses: one rank of two, or two ranks of one
INPUTS = pathlib.Path(__file__).resolve().parents[2] / "inputs"
COLUMNS = "{:<58} {:>10} {:<9} {:>8}  {}"


class Bench:
    """The options, the trainer, and the rows measured so far."""

    def __init__(self, options, folder):
        self.options = options
        self.trainer = Trainer(options.binary, options.mpirun, folder)
        self.trainer.environment["OMP_NUM_THREADS"] = str(THREADS)
        self.folder = pathlib.Path(folder)
        self.rows = []

    def row(self, what, values, unit="", goal=None, least=True, note=""):
        """Adds the median of the values, and prints it. `goal` is the least that is wanted, or the most."""
        value = statistics.median(values)
        spread = f"{min(values):.4g} to {max(values):.4g}" if len(values) > 1 else ""
        met = goal is None or (value >= goal if least else value <= goal)
        wanted = "" if goal is None else f"{'>=' if least else '<='} {goal:g}"
        self.rows.append({"what": what, "value": value, "values": list(values), "unit": unit, "goal": wanted, "met": met, "note": note})
        remarks = ["" if met else "MISSED", spread, note]
        print(COLUMNS.format(what, f"{value:.4g}", unit, wanted, "  ".join(filter(None, remarks))), flush=True)

    def train(self, source, ranks=1, threads=THREADS, overrides=()):
        """The record of a run of which the first step is not counted; ends the bench when the run fails."""
        result = self.trainer.train(source, ranks, [f"device.threads={threads}", "output.overwrite=true", *overrides], seconds=3600)
        if result.exit_code != 0:
            raise SystemExit(f"the run that is measured failed: {show(result)}")
        return read_record(result.output)

    def products(self):
        """Rows of `bench gemm`."""
        path = self.folder / "gemm.json"
        result = self.trainer.run(["bench", "gemm", "--json", path], seconds=3600)
        if result.exit_code != 0:
            raise SystemExit(f"bench gemm failed: {show(result)}")
        return json.loads(path.read_text())

    def repetitions(self):
        return range(self.options.repeat)


def tokens_per_second(record):
    return record["steps/tokens"][1:].sum() / record["steps/seconds"][1:].sum()


def measure_products(bench):
    measured = [bench.products() for _ in bench.repetitions()]
    for rows in zip(*measured):
        bench.row(f"matrix product {rows[0]['precision']} {rows[0]['shape']}", [r["rate"] for r in rows], rows[0]["unit"])
    for precision in ("fp32", "bf16"):
        rates = [shapes.product_rate(m, precision) * 1e-9 for m in measured]
        bench.row(f"matrix products {precision}, weighted as in a GPT-2 124M step", rates, "GFLOP/s")


def measure_gpt2(bench):
    for precision, goal in (("fp32", 1.1), ("bf16", 1.25)):
        if precision in bench.options.precision:
            measure_precision(bench, precision, goal)


def measure_precision(bench, precision, goal):
    name = shapes.name(bench.options)
    source = shapes.gpt2(bench.options, precision)
    ours, shares, theirs = [], [], []
    torch = TorchSide(bench.options, source, precision, THREADS) if bench.options.torch else None
    for _ in bench.repetitions():
        record = bench.train(source)
        ours.append(tokens_per_second(record))
        rate = record["flops/hardware"] / (record["steps/seconds"][1:].sum() / (len(record["steps/seconds"]) - 1))
        shares.append(rate / shapes.product_rate(bench.products(), precision))
        if torch:
            theirs.append(torch.tokens_per_second())
    bench.row(f"{name} {precision}: ours", ours, "tokens/s")
    bench.row(f"{name} {precision}: share of the matrix-product rate", shares, "", 0.75)
    if torch:
        bench.row(f"{name} {precision}: PyTorch {torch.version}", theirs, "tokens/s", note=torch.chosen)
        bench.row(f"{name} {precision}: ours / PyTorch", [a / b for a, b in zip(ours, theirs)], "", goal)
        torch.close()


def measure_grids(bench):
    name = shapes.name(bench.options)
    for axis, (train, ways) in shapes.GRIDS.items():
        source = shapes.gpt2(bench.options, "fp32", train)
        one, shares = [], {way: [] for way in ways}
        for _ in bench.repetitions():
            one.append(tokens_per_second(bench.train(source, 1, THREADS)))
            for way in ways:
                two = bench.train(source, 2, 1, [f"grid.{axis}=2", *way.split()])
                shares[way].append(tokens_per_second(two) / one[-1])
        bench.row(f"{name} fp32 {axis} 2: one rank of two threads", one, "tokens/s")
        for way, goal in ways.items():
            bench.row(f"{name} fp32 {axis} 2: two ranks of one / one rank of two", shares[way], "", goal, note=way)


def measure_overhead(bench):
    name = shapes.name(bench.options)
    small = shapes.small()
    for what, source, ranks, overrides in ((f"{name}, 1 rank", shapes.gpt2(bench.options, "fp32"), 1, []),
                                           ("the quickstart's model, 1 rank", small, 1, []),
                                           ("the quickstart's model, 2 ranks, dp 2", small, 2, ["grid.dp=2"])):
        shares = []
        for _ in bench.repetitions():
            record = bench.train(source, ranks, THREADS // ranks, overrides)
            categories = [name.decode() for name in record["time/categories"]]
            seconds = record["time/seconds"][1:]
            shares.append(seconds[:, :, categories.index("other")].sum() / seconds.sum())
        bench.row(f"executor overhead, {what}", [100 * s for s in shares], "% of step", 2, least=False)


def measure_start(bench):
    seconds = [start.seconds_to_first_step(bench.trainer) for _ in bench.repetitions()]
    bench.row("quickstart, 4 ranks: launch to the first step's begin", seconds, "s", 2, least=False)


def measure_plan(bench):
    """Time and memory of `plan` for the largest input, on one core."""
    command = [bench.trainer.binary, "plan", INPUTS / "llama3-405b.yaml", "--ranks", "16384", "--json"]
    seconds, gib = [], []
    for _ in bench.repetitions():
        begin = time.monotonic()
        process = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
        _, status, used = os.wait4(process, 0)
        seconds.append(time.monotonic() - begin)
        gib.append(used.ru_maxrss / (1 << 20))
        if status != 0:
            raise SystemExit(f"the plan that is measured failed: wait status {status}")
    on_cpu = f"{used.ru_utime + used.ru_stime:.2f} s of one core"  # what others on the machine do not stretch
    bench.row("plan of Llama-3 405B, 16,384 ranks: time", seconds, "s", 10, least=False, note=on_cpu)
    bench.row("plan of Llama-3 405B, 16,384 ranks: peak of the process", gib, "GiB", 2, least=False)


SECTIONS = {"gemm": measure_products, "gpt2": measure_gpt2, "grids": measure_grids, "zero": homes.measure_zero, "recompute": homes.measure_recompute,
            "offload": homes.measure_offload, "budget": homes.measure_budget, "overhead": measure_overhead,
            "start": measure_start, "plan": measure_plan, "collectives": collectives.measure, "overlap": overlap.measure, "storage": storage.measure,
            "save": saves.measure}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="build/quadrille", help="the trainer")
    parser.add_argument("--mpirun", help="the launcher's mpirun (default: jobscripts/launch.sh chooses)")
    parser.add_argument("--torch", metavar="PYTHON", help="a python that imports torch; without it PyTorch is not measured")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="only this section; repeatable")
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"], help="of the section gpt2")
    parser.add_argument("--disk", metavar="DIRECTORY", help="on the disk that sections storage and save measure (default: that of temporary files)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions, whose median is shown")
    parser.add_argument("--steps", type=int, default=2, help="counted steps of each repetition, after one that is not")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    if options.quick:
        options.repeat, options.steps = 1, 2
    return options


def main():
    options = parse_options()
    print(COLUMNS.format("what", "median", "unit", "goal", "least to most"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        bench = Bench(options, folder)
        for name in options.only or SECTIONS:
            SECTIONS[name](bench)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(bench.rows, indent=1) + "\n")
    goals = [row for row in bench.rows if row["goal"]]
    print(f"{sum(row['met'] for row in goals)} of {len(goals)} goals met")


if __name__ == "__main__":
    main()

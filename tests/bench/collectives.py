"""Collectives of our own against the MPI library's, and an all-reduce against a plain copy of as many bytes: the section `collectives` of run.py."""
import json
import statistics

from trainer import show

SMALL = 64 << 10   # bytes, up to which latency decides
LARGE = 64 << 20


def goal(name, algorithm, size):
    """The least ratio of the library's time to ours that is wanted; of what comm.algorithm: auto takes."""
    if algorithm != "auto":
        return None
    if name == "all_reduce" and size == LARGE:
        return 1.8
    return 1 if size > SMALL else 1 / 1.5


def measured(bench, ranks):
    """{(name, bytes, algorithm): seconds} of one repetition."""
    path = bench.folder / "collectives.json"
    result = bench.trainer.run(["bench", "collectives", "--json", path], ranks=ranks, seconds=3600)
    if result.exit_code != 0:
        raise SystemExit(f"bench collectives failed: {show(result)}")
    return {(row["name"], row["bytes"], row["algorithm"]): row["seconds"] for row in json.loads(path.read_text())}


def measure(bench):
    threads, bench.trainer.environment["OMP_NUM_THREADS"] = bench.trainer.environment["OMP_NUM_THREADS"], "1"
    for ranks in (2, 4):
        runs = [measured(bench, ranks) for _ in bench.repetitions()]
        for name, size, algorithm in runs[0]:
            if name == "copy" or algorithm == "native":
                continue
            native, ours = ([run[name, size, which] for run in runs] for which in ("native", algorithm))
            bench.row(f"{name}, {size} bytes, {ranks} ranks: native / {algorithm} time", [n / o for n, o in zip(native, ours)],
                      goal=goal(name, algorithm, size), note=f"native {statistics.median(native) * 1e6:.1f} us")
            if (name, algorithm) == ("all_reduce", "auto") and size >= LARGE // 2:
                copies = [run["copy", size, "memcpy"] for run in runs]
                bench.row(f"{name}, {size} bytes, {ranks} ranks: {algorithm} / a copy's time", [o / c for o, c in zip(ours, copies)], goal=2,
                          least=False, note=f"copy {statistics.median(copies) * 1e6:.1f} us")
    bench.trainer.environment["OMP_NUM_THREADS"] = threads

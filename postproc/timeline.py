#!/usr/bin/env python3
"""Turns a run's trace.h5 into a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing: ops, and the bytes in use over one step.

    python3 postproc/timeline.py runs/quickstart [timeline.json]

The run must have had output.trace=true. One process per rank, one track per queue and one counter per tier, which stacks the five books. Needs h5py.
"""
import json
import pathlib
import sys

import h5py


def events(file):
    """The trace-event format's complete events ("X") and the names of its tracks, times in microseconds."""
    trace = file["trace"]
    queues = [str(name) for name in trace["queues"].asstr()[()]]
    ops = [str(name) for name in trace["ops"].asstr()[()]]
    columns = [trace[name][()].tolist() for name in ("step", "rank", "queue", "op", "begin", "end")]
    for rank, queue in sorted(set(zip(columns[1], columns[2]))):
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": queue, "args": {"name": queues[queue]}}
    for step, rank, queue, op, begin, end in zip(*columns):
        yield {"ph": "X", "name": ops[op], "pid": rank, "tid": queue, "ts": 1e6 * begin, "dur": 1e6 * (end - begin), "args": {"step": step}}


def memory(file):
    """The trace-event format's counter events ("C"), one per change of a tier that was ever in use, in bytes."""
    group = file["memory"]
    tiers, books = ([str(name) for name in group[name].asstr()[()]] for name in ("tiers", "books"))
    ranks, tier, time, in_use = (group[name][()] for name in ("rank", "tier", "time", "bytes"))
    used = {pair for pair, of_books in zip(zip(ranks, tier), in_use) if of_books.any()}
    for rank, t, at, of_books in zip(ranks, tier, time, in_use):
        if (rank, t) in used:
            yield {"ph": "C", "name": f"{tiers[t]} memory", "pid": int(rank), "ts": 1e6 * at, "args": dict(zip(books, of_books.tolist()))}


def traced(path):
    """The timeline of a trace.h5, or of the directory that holds it. Exits with a sentence where there is none."""
    if not path.exists():
        sys.exit(f"timeline.py: {path}: there is no such file or directory")
    if path.is_dir():
        path = path / "trace.h5"
        if not path.exists():
            sys.exit(f"timeline.py: {path.parent} holds no trace.h5; run with output.trace=true")
    try:
        with h5py.File(path, "r") as file:
            if "trace" in file and "memory" in file:
                return path, {"traceEvents": [*events(file), *memory(file)], "displayTimeUnit": "ms"}
    except OSError as error:
        sys.exit(f"timeline.py: {path} cannot be read: {error}")
    sys.exit(f"timeline.py: {path} is no trace; a run with output.trace=true leaves trace.h5")


def main(arguments):
    if arguments in (["--help"], ["-h"]):
        print(__doc__.strip())
        return
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    path, timeline = traced(pathlib.Path(arguments[0]))
    output = pathlib.Path(arguments[1]) if len(arguments) == 2 else path.with_name("timeline.json")
    output.write_text(json.dumps(timeline))
    print(f"{len(timeline['traceEvents'])} events: {output}")


if __name__ == "__main__":
    main(sys.argv[1:])

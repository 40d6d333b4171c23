#!/usr/bin/env python3
"""Turns a run's trace.h5 into a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing: ops, and the bytes in use over one step.

    trace.py RUN [FILE.json]

RUN is a run's directory or its trace.h5; the timeline is trace.json beside it unless named. The run must have had output.trace=true. One process per
rank, named by its place on the grid where the record is there, one track per queue, and one counter per tier, which stacks the five books.

Exit codes: 0 done; 2 usage, or no such trace; 5 a trace that is damaged or of another layout, or a timeline that cannot be written. Needs h5py.
"""
import json
import pathlib
import sys

import needs

try:
    import record
except ImportError as error:
    sys.exit(needs.tell("trace.py", __doc__, error))


def events(trace):
    """The trace-event format's complete events ("X") and the names of its tracks, times in microseconds."""
    for queue, name in enumerate(trace.queues):
        for rank in sorted(set(trace.rank[trace.queue == queue].tolist())):
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": queue, "args": {"name": name}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": queue, "args": {"sort_index": queue}}
    columns = (getattr(trace, name).tolist() for name in ("step", "rank", "queue", "op", "begin", "end"))
    for step, rank, queue, op, begin, end in zip(*columns):
        yield {"ph": "X", "name": trace.ops[op], "pid": rank, "tid": queue, "ts": 1e6 * begin, "dur": 1e6 * (end - begin), "args": {"step": step}}


def processes(trace, coordinates):
    """A name for each rank: with its dp, tp, pp and sp where the record tells them."""
    for rank in sorted(set(trace.rank.tolist())):
        place = "".join(f" {axis}{at}" for axis, at in zip(("dp", "tp", "pp", "sp"), coordinates[rank])) if rank < len(coordinates) else ""
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}{place}"}}


def memory(trace):
    """The trace-event format's counter events ("C"), one per change of a tier that was ever in use, in bytes."""
    rows = list(zip(trace.memory_rank.tolist(), trace.memory_tier.tolist(), trace.memory_time.tolist(), trace.memory_bytes.tolist()))
    used = {(rank, tier) for rank, tier, _, of_books in rows if any(of_books)}
    for rank, tier, at, of_books in rows:
        if (rank, tier) in used:
            yield {"ph": "C", "name": f"{trace.tiers[tier]} memory", "pid": rank, "ts": 1e6 * at, "args": dict(zip(trace.books, of_books))}


def timeline(path):
    """The timeline of a trace, or of the directory that holds it. Raises record.RecordError."""
    trace = record.load_trace(path)
    folder = path if path.is_dir() else path.parent
    try:
        coordinates = record.load(folder).coordinates.tolist()
    except record.RecordError:
        coordinates = []  # a trace stands for itself
    return {"traceEvents": [*processes(trace, coordinates), *events(trace), *memory(trace)], "displayTimeUnit": "ms"}


def main(arguments):
    if arguments in (["--help"], ["-h"]):
        print(__doc__.strip())
        return 0
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    path = pathlib.Path(arguments[0])
    output = pathlib.Path(arguments[1]) if len(arguments) == 2 else (path if path.is_dir() else path.parent) / "trace.json"

    def work():
        made = timeline(path)
        output.write_text(json.dumps(made), encoding="utf-8")
        print(f"{len(made['traceEvents'])} events: {output}")

    return record.exit_code("trace.py", work, output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Writes a report: one HTML file that opens offline, and if asked its figures as PNG and PDF and its tables as CSV.

    report.py RUN|SWEEP... [--output FILE.html] [--figures DIR] [--csv DIR] [--peak FLOPS] [--fit BYTES]
    report.py INPUT.yaml [section.key=value ...] [--ranks N] [--quadrille FILE]     an input, or plan --json's output: does it fit, and what would

RUN is a run's directory, a record in it or a job's directory, SWEEP a directory of jobscripts/sweep.py's. Several runs are also set side by side, as
a sweep's points are. The report of one goes into its directory, of several into the working one, as report.html; that of an input into the working
directory, as INPUT-plan.html. --peak: what a rank's hardware can do in flop/s, for MFU. --fit: also plan the run's input within so much device
memory (1GiB). --quadrille: the binary that plans (build/quadrille).

Exit codes: 0 done; 2 usage, or no such run; 5 a record that is damaged or of another layout, or a report that cannot be written; an input that is
refused ends with plan's own. Needs h5py, numpy, matplotlib and PyYAML.
"""
import argparse
import pathlib
import re
import sys

import needs

try:
    import plan_report
    import run_report
    import sweep_report
    from page import Page
    from record import MISSING, RecordError, exit_code
except ImportError as error:
    sys.exit(needs.tell("report.py", __doc__, error))

# What there is to report on, in the order in which a path is tried: modules with recognises(path), title(path) and
# write(page, path, options, prefix), which adds chapters to the page.
KINDS = (plan_report, sweep_report, run_report)


def kind_of(path):
    """The module that reports on what is there. Raises RecordError."""
    if not path.exists():
        raise RecordError(f"{path}: there is no such file or directory", MISSING)
    for kind in KINDS:
        if kind.recognises(path):
            return kind
    raise RecordError(f"{path} is neither a run (its directory, or run.h5) nor an input (.yaml) nor a plan (.json)", MISSING)


def build(paths, options):
    """The page of all paths, in their order; with several their files' names begin with their number and name. Raises RecordError."""
    kinds = [kind_of(path) for path in paths]
    titles = [kind.title(path) for kind, path in zip(kinds, paths)]
    page = Page(titles[0] if len(titles) == 1 else f"{len(titles)} subjects", "" if len(titles) == 1 else ", ".join(titles))
    runs = [path for kind, path in zip(kinds, paths) if kind is run_report]
    if len(runs) > 1:
        sweep_report.write_beside(page, runs, "beside-")
    for number, (kind, path) in enumerate(zip(kinds, paths), 1):
        name = re.sub(r"[^A-Za-z0-9]+", "-", path.resolve().stem)
        kind.write(page, path, options, f"{number}-{name}-" if len(paths) > 1 else "")
    return page


def place_of(paths, options):
    """Where the HTML file goes."""
    if options.output:
        return options.output
    if len(paths) > 1:
        return pathlib.Path("report.html")
    only = paths[0]
    if only.is_file() and kind_of(only) is plan_report:
        return pathlib.Path(f"{only.stem}-plan.html")
    return (only if only.is_dir() else only.parent) / "report.html"


def parse(arguments):
    parser = argparse.ArgumentParser(prog="report.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="RUN", help="runs, inputs or plans; section.key=value changes the inputs")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE.html")
    parser.add_argument("--figures", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--csv", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--ranks", type=int, metavar="N")
    parser.add_argument("--peak", type=float, default=0.0, metavar="FLOPS")
    parser.add_argument("--fit", metavar="BYTES")
    parser.add_argument("--quadrille", type=pathlib.Path, metavar="FILE")
    options = parser.parse_intermixed_args(arguments)
    changes = [word for word in options.paths if re.match(r"\w+\.\w+=", word) and not pathlib.Path(word).exists()]
    options.overrides = changes
    options.paths = [pathlib.Path(word) for word in options.paths if word not in changes]
    if not options.paths:
        parser.error("which run?")
    return options


def main(arguments):
    options = parse(arguments)

    def work():
        page = build(options.paths, options)
        place = place_of(options.paths, options)
        page.write(place)
        if options.figures:
            page.write_figures(options.figures)
        if options.csv:
            page.write_csv(options.csv)
        print(f"{len(page.figures())} figures, {len(page.tables())} tables: {place}")

    return exit_code("report.py", work, options.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Runs an input at many points: over ranks, grids, ZeRO stages, tiers, any keys; drops what `quadrille plan` refuses, and says why.

    jobscripts/sweep.py inputs/sweeps/zero-stages.yaml                   # here, one point after another, with a progress bar
    jobscripts/sweep.py inputs/sweeps/weak.yaml --machine cpu-cluster    # as job arrays, one for each number of nodes
    jobscripts/sweep.py inputs/sweeps/weak.yaml --dry-run                # the points, and what is dropped
    jobscripts/sweep.py runs/weak-sweep                                  # goes on where it was; so does the first command, said again
    jobscripts/sweep.py runs/weak-sweep --status                         # where each point stands

No point runs twice: not when this is killed and said again, nor (where the file system has locks) from two terminals, nor beside a job that is
queued. Points that failed are left alone unless --retry asks for them. jobscripts/README.md describes sweep files and a sweep's directory,
inputs/sweeps/ has some.

Exit code: 0 all points are done, or queued; 1 some failed; 2 refused as wrong; 3 no point fits; 5 a file is damaged or cannot be read or written;
75 stopped by a signal (points that ran have saved); 130 interrupted while it planned or queued.
"""
import argparse
import filecmp
import pathlib
import sys
import time

import document
import machine as machines
import points
import progress
import runs
import slurm
import standing
import sweeps
from document import Refused

LOOK = 0.2  # seconds between looks at a run that is under way


def parse_arguments(words):
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(prog="sweep.py", description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=pathlib.Path, help="a sweep file, or the directory of a sweep that was begun")
    parser.add_argument("--status", action="store_true", help="a table of the points, and nothing else")
    parser.add_argument("--dry-run", action="store_true", help="plan all points, show them and do nothing")
    parser.add_argument("--retry", action="store_true", help="points that failed, too")
    parser.add_argument("--machine", help=f"a name ({', '.join(machines.names())}) or a machine file; default: the sweep file's")
    parser.add_argument("--time", help="of one job, [days-]hours:minutes:seconds; default: the sweep file's, or the machine's")
    parser.add_argument("--at-once", type=document.positive, metavar="N", help="at most so many jobs of an array at a time")
    parser.add_argument("--directory", type=pathlib.Path, help="of the sweep; default runs/NAME-sweep")
    parser.add_argument("--binary", help=f"the trainer, of a new sweep (default: {runs.BINARY})")
    return parser.parse_args(words)


def begin(arguments):
    """The sweep of a file, expanded into its directory: (sweep, directory)."""
    file = points.load(arguments.sweep)
    directory = (arguments.directory or pathlib.Path("runs") / f"{file.name}-sweep").absolute()
    if directory.exists() and any(directory.iterdir()) and not (directory / "sweep.lock").exists():
        raise Refused(f"{directory} is not empty, and no sweep's; --directory names another")
    if arguments.dry_run:
        return expand(arguments, file, directory), directory
    with sweeps.locked(directory):
        try:
            return expand(arguments, file, directory), directory
        finally:
            sweeps.leave_nothing(directory)


def expand(arguments, file, directory):
    former = sweeps.read(directory)
    chosen = arguments.machine or file.machine
    if former:
        sweeps.check_place(former, directory)
        check_unchanged(arguments, file, directory, former)
        machine = machines.load(directory / "machine.yaml", former["machine"])
        trainer, limit = runs.find_trainer(directory / "bin/quadrille"), former["time"]
    else:
        machine = machines.load(chosen or machines.default_name())
        trainer, limit = runs.find_trainer(arguments.binary or runs.BINARY), document.time_option(arguments.time) or file.time or machine.time
    return sweeps.expand(file, directory, trainer, machine, limit, arguments.dry_run)


def check_unchanged(arguments, file, directory, former):
    """Raises Refused where the command line or the file now says another machine or time than the sweep was begun with."""
    before = sweeps.said_at_first(directory, ("machine", "time"))
    machine = arguments.machine or (file.machine if file.machine != before["machine"] else None)
    limit = arguments.time or (file.time if file.time != before["time"] else None)
    if machine and machines.load(machine).name != former["machine"] or limit and limit != former["time"]:
        asked = f"machine {machine}" if machine else limit_text(limit)
        raise Refused(f"{directory} was begun on machine {former['machine']} with {limit_text(former['time'])}; {asked} would be another sweep: "
                      "--directory names another")
    if machine and not filecmp.cmp(machines.load(machine).path, directory / "machine.yaml", shallow=False):
        print(f"the file of machine {machine} is not what it was: {directory} goes on with its own machine.yaml", file=sys.stderr)


def limit_text(limit):
    return f"jobs of {limit}" if limit else "no time limit"


def go_on(arguments):
    """The sweep of a directory, as it was begun: (sweep, directory)."""
    directory = arguments.sweep.absolute()
    sweep = sweeps.read(directory)
    if sweep is None:
        raise Refused(f"{directory}: no sweep has been begun there: it has no sweep.json")
    if not arguments.status:  # which only looks
        sweeps.check_place(sweep, directory)
    given = [f"--{name}" for name in ("machine", "time", "directory", "binary") if getattr(arguments, name) is not None]
    if given:
        raise Refused(f"{directory} goes on as it was begun: {', '.join(given)} cannot be changed")
    return sweep, directory


def run_points(sweep, directory, retry):
    """Runs points here, one after another, until none waits; returns the exit code."""
    kept, tried = sweeps.kept(sweep), set()
    with runs.Stopping() as stopping:
        bar = progress.Bar(sweep["name"], len(kept))
        while not stopping.asked:
            bar.done = [sweeps.state(point, directory)["state"] for point in kept].count("done")
            point = next((point for point in sweeps.waiting(sweep, directory, retry) if point["index"] not in tried), None)
            if point:
                beside = [each["name"] for each in kept if each is not point and sweeps.is_under_way(each, directory)]
                if beside:
                    bar.line(f"{point['name']} begins beside {', '.join(beside)}, still running: their times will tell of each other")
                run_point(point, directory, bar, stopping)
                tried.add(point["index"])
            elif any(sweeps.is_under_way(point, directory) for point in kept):
                bar.show("waits for points that another sweep.py or job runs")
                time.sleep(LOOK)
            else:
                break
        bar.end()
    states = [sweeps.state(point, directory)["state"] for point in kept]
    print(f"{directory}: {progress.counted(states, len(sweep['points']) - len(kept))}")
    if stopping.asked:
        print(f"stopped by {stopping.asked}; `sweep.py {directory}` goes on from here")
        return standing.STOPPED
    return 0 if set(states) == {"done"} else 1


def run_point(point, directory, bar, stopping):
    """One attempt, and those that follow a stop; whoever else has it, has it."""
    place = directory / point["directory"]
    process = stopping.follow(runs.start_here(place))
    while process.poll() is None:
        step, steps = standing.steps_of(place) or (0, 1)
        bar.show(f"{point['name']}  step {step}/{steps}", step / steps)
        time.sleep(LOOK)
    if process.returncode != standing.BUSY:
        told = standing.state_of(place)
        state, code, why = standing.ended(place, process.returncode)
        words = f"{told['seconds']} s" if state == "done" else f"exit code {code}, {told['reason'] or f'see {place}/log.txt'}"
        bar.line(f"{state:8} {point['name']}: {why or words}")


def first_line(text):
    return text.partition("\n")[0]


def show_status(sweep, directory):
    """Where each point stands."""
    queue = slurm.queued(directory) if slurm.submitted(directory) else {}
    rows = [["point", "ranks", "state", "steps", "seconds", "attempts", "remark"]]
    for point in sweep["points"]:
        if point["dropped"]:
            rows.append([point["name"], str(point["ranks"]), "dropped", "", "", "", first_line(point["dropped"])])
            continue
        state, steps = sweeps.state(point, directory), standing.steps_of(directory / point["directory"])
        remark = f"exit code {state['exit_code']}: {state['reason']}" if state["state"] in ("failed", "stopped") else state["reason"] or ""
        where = f"{state['state']}, {queue[point['index']].lower()} in the queue" if point["index"] in queue else state["state"]
        rows.append([point["name"], str(point["ranks"]), where, f"{steps[0]}/{steps[1]}" if steps else "", str(state["seconds"] or ""),
                     str(state["attempts"] or ""), remark])
    states = [sweeps.state(point, directory)["state"] for point in sweeps.kept(sweep)]
    print(f"{progress.table(rows)}\n{progress.counted(states, len(sweep['points']) - len(states))}")


def go(arguments):
    if arguments.status and not arguments.sweep.is_dir():
        name = points.load(arguments.sweep).name
        arguments.sweep = arguments.directory or pathlib.Path("runs") / f"{name}-sweep"
        arguments.directory = arguments.binary = None  # the first command, said again
    sweep, directory = go_on(arguments) if arguments.sweep.is_dir() or arguments.status else begin(arguments)
    if arguments.status:
        show_status(sweep, directory)
        return 0
    kept = sweeps.kept(sweep)
    for point in sweep["points"]:
        if point["dropped"]:  # in full it is in sweep.json and in the report
            print(f"dropped: {point['name']}: {first_line(point['dropped'])}")
    if not kept:
        too_big = all("does not fit" in point["dropped"] for point in sweep["points"])
        raise Refused("no point can run", runs.NO_MEMORY if too_big else document.REFUSED)
    if arguments.dry_run:
        print("\n".join(f"point {point['index']}: {point['ranks']} ranks: {' '.join(point['overrides'])}" for point in kept))
        return 0
    machine = machines.load(directory / "machine.yaml")
    if not machine.slurm:
        return run_points(sweep, directory, arguments.retry)
    with sweeps.locked(directory):
        for told in sweeps.queue(sweep, directory, machine, arguments.retry, arguments.at_once):
            print(told)
    return 0


def main(words):
    arguments = parse_arguments(words)
    return document.exit_code("sweep.py", lambda: go(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Plans a run, refuses what cannot run, writes its directory, and queues it, or runs it here where there is no Slurm.

    jobscripts/submit.py inputs/gpt2-1.5b.yaml --machine cpu-cluster --nodes 4 --time 08:00:00 checkpoint.interval=500
    jobscripts/submit.py inputs/quickstart.yaml --ranks 4                # on a laptop: the same directory, the same results
    jobscripts/submit.py inputs/llama3-8b.yaml --machine my.yaml --nodes 16 --dry-run    # only says what it would do
    jobscripts/submit.py runs/gpt2-1.5b-job                              # goes on with a run that was begun

A run that stops on purpose (signal, end of its time; exit code 75) goes on by itself until its steps are done: in Slurm it is queued again, here it
is begun again. jobscripts/README.md describes the run's directory and machine files.

Exit code: of a run here, the trainer's; else 0 queued, 2 refused as wrong, 3 refused for memory, 5 a file is damaged or cannot be read or written,
11 the run is under way, 130 interrupted while it planned or queued.
"""
import argparse
import pathlib
import sys
import time

import document
import machine as machines
import runs
import slurm
import standing
from document import Refused


def parse_arguments(words):
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(prog="submit.py", description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=pathlib.Path, help="an input file, or the directory of a run that was begun")
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    parser.add_argument("--machine", help=f"a name ({', '.join(machines.names())}) or a machine file; default: laptop where there is no Slurm")
    parser.add_argument("--nodes", type=document.positive, help="default: as many as the ranks need")
    parser.add_argument("--ranks", type=document.positive, help="default: the machine's ranks per node, on each node")
    parser.add_argument("--ranks-per-node", type=document.positive)
    parser.add_argument("--time", help="of one job, [days-]hours:minutes:seconds; default: the machine's")
    parser.add_argument("--directory", type=pathlib.Path, help="of the run; default runs/NAME-job, NAME being the input file's stem")
    parser.add_argument("--name", help="of the job; default: the directory's")
    parser.add_argument("--binary", help=f"the trainer (default: {runs.BINARY})")
    parser.add_argument("--dry-run", action="store_true", help="plan, show the script and do nothing")
    return parser.parse_intermixed_args(words)


def begin(arguments):
    """A new run."""
    if not arguments.input.is_file():
        raise Refused(f"{arguments.input}: there is no such input file")
    trainer = runs.find_trainer(arguments.binary or runs.BINARY)
    machine = machines.load(arguments.machine or machines.default_name())
    layout = machines.lay_out(machine, arguments.ranks, arguments.nodes, arguments.ranks_per_node)
    directory = (arguments.directory or pathlib.Path("runs") / f"{arguments.input.stem}-job").absolute()
    if (directory / "job.sh").exists():
        done = standing.state_of(directory)["state"] == "done"
        what = "which is done" if done else f"and `submit.py {directory}` goes on with it"
        raise Refused(f"{directory} is a run's, {what}: --directory names another")
    if directory.exists() and any(path.name.removesuffix(".new") not in runs.BEFORE_SCRIPT for path in directory.iterdir()):
        raise Refused(f"{directory} is not empty; --directory names another")
    limit, name = document.time_option(arguments.time) or machine.time, arguments.name or directory.name
    prepared = runs.prepare(trainer, machine, layout, arguments.input.absolute(), arguments.overrides, directory)
    document.check_for_script("the job's name", name)
    print(prepared.warnings + of_another(prepared.checkpoints), end="", file=sys.stderr)
    print(describe(prepared, machine, limit))
    if layout.ranks_per_node > machine.cores:
        cores = f"{machine.cores} core{'s' * (machine.cores > 1)}"
        print(f"{layout.ranks_per_node} ranks share {cores} of {machine.name}: each waits for the others' turns", file=sys.stderr)
    if arguments.dry_run:
        command = [str(directory / "bin/quadrille"), "train", str(directory / "input.yaml")]
        print(f"would write {directory} and {'queue' if machine.slurm else 'run'} this:\n")
        print(slurm.script_head(machine, layout, name, limit, directory / "log.txt")
              + runs.script_body(machine, layout, limit, directory, directory, command), end="")
        return 0
    runs.write_tools(directory, trainer, machine)
    runs.write_run(prepared, trainer, machine, name, limit, directory)
    try:
        return start(directory, machine.slurm)
    except Refused as refused:  # by sbatch: without job.sh the directory is of no run yet
        (directory / "job.sh").unlink()
        rest = f"nothing was queued, and {directory} is no run's yet: the same command, put right, begins it"
        raise Refused(f"{refused}\n{rest}", refused.code) from None


def of_another(checkpoints):
    """What there is to say of a checkpoint.directory in which a new run finds steps that are none of its own."""
    steps = sorted(path.name for path in checkpoints.glob("step-*")) if checkpoints.is_dir() else []
    return f"checkpoint.directory {checkpoints} holds {steps[-1]} of another run, and checkpoint.resume=auto goes on from it\n" if steps else ""


def describe(prepared, machine, limit):
    layout, peaks = prepared.layout, prepared.bytes_by_tier
    where = ", ".join(f"{tier} {runs.bytes_text(peak)}" for tier, peak in peaks.items() if peak)
    return (f"{prepared.source.name}: {layout.ranks} ranks on {layout.nodes} node{'s' * (layout.nodes > 1)} of {machine.name}, "
            f"{layout.threads} thread{'s' * (layout.threads > 1)} each; at most {where} a rank; {f'jobs of {limit}' if limit else 'no time limit'}")


def go_on(arguments):
    """A run that was begun: what it is stays as it was."""
    names = ("machine", "nodes", "ranks", "ranks_per_node", "time", "directory", "name", "binary")
    given = [name for name in names if getattr(arguments, name) is not None]
    if given or arguments.overrides:
        what = [f"--{name.replace('_', '-')}" for name in given] + arguments.overrides
        raise Refused(f"{arguments.input} goes on as it was begun: {', '.join(what)} cannot be changed; a new run can, from a checkpoint of it")
    directory = arguments.input.absolute()
    sweep = directory.parent.parent
    if directory.parent.name == "points" and (sweep / "sweep.json").exists():
        raise Refused(f"{directory} is a point of a sweep: `sweep.py {sweep}` goes on with those that wait, with --retry also with those that failed")
    if not (directory / "job.sh").exists():
        raise Refused(f"{directory} is a directory, but no run's: it has no job.sh")
    state = standing.state_of(directory)["state"]
    if state == "done":
        print(f"{directory}: is done")
        return 0
    made = runs.made_as(directory)
    if made:
        runs.refuse_moved(directory, made, "submit.py")
    queues = machines.load(directory / "machine.yaml").slurm
    if arguments.dry_run:
        print(f"{directory}: {state}; would be {'queued' if queues else 'run'} again:\n\n{(directory / 'job.sh').read_text()}", end="")
        return 0
    return start(directory, queues)


def start(directory, queues):
    """Queues a run, or runs it here and shows what it prints."""
    if queues:
        queued = slurm.queued(directory)
        if queued:
            raise Refused(f"{directory}: is in the queue already, as job {', '.join(sorted(queued))}", standing.BUSY)
        number = slurm.submit(directory, directory / "job.sh")
        print(f"queued as job {number}: {directory}; its words: {directory / 'log.txt'}")
        return 0
    log = directory / "log.txt"
    log.touch()
    with runs.Stopping() as stopping, open(log, errors="replace") as file:
        file.seek(0, 2)
        process = stopping.follow(runs.start_here(directory))
        running = True
        while running:
            running = process.poll() is None
            sys.stdout.write(file.read())
            sys.stdout.flush()
            if running:
                time.sleep(0.1)
    state, code, why = standing.ended(directory, process.returncode)
    goes_on = f"; `submit.py {directory}` goes on from here" if state == "stopped" else ""
    print(f"{state}: {directory}{f': {why}' if why else ''}{goes_on}")
    return code


def main(words):
    arguments = parse_arguments(words)
    return document.exit_code("submit.py", lambda: go_on(arguments) if arguments.input.is_dir() else begin(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

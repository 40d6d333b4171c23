"""Slurm, as far as the job scripts need it: the lines for sbatch, submission, and which of what was submitted is in the queue.

Owns jobs.json, the list of a run's or sweep's submissions (jobscripts/README.md). What a job does is its script's body (runs.py, attempt.sh).
"""
import json
import os
import re
import subprocess
import time

import keeping
from document import Refused


def is_here():
    """Whether this computer belongs to a Slurm, be it up or down. Its commands may be installed without."""
    try:
        return "Slurmctld" in _ask(["scontrol", "ping"]).stdout
    except Refused:
        return False


def script_head(machine, layout, name, limit, log):
    """The first lines of a script, for sbatch; elsewhere they are comments. Its output goes to the end of `log`."""
    options = [f"--job-name={name}", f"--nodes={layout.nodes}", f"--ntasks-per-node={layout.ranks_per_node}", f"--cpus-per-task={layout.threads}",
               f"--signal=USR1@{machine.signal}", "--requeue", "--open-mode=append", f"--output={str(log).replace('%', '%%')}"]
    options += [f"--{key}={value}" for key, value in (("time", limit), ("partition", machine.partition), ("account", machine.account)) if value]
    lines = "".join(f"#SBATCH {_word(option)}\n" for option in [*options, *machine.options])
    return f"#!/usr/bin/env bash\n{lines}set -uo pipefail\n"


def _word(option):
    """As sbatch reads a word of its lines: quotes keep spaces together."""
    return option if re.fullmatch(r"[^\s\"'\\#]+", option) else '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


def submit(directory, script, indices=None, at_once=None):
    """Queues a script, as an array of these indices if there are any, and notes it in the directory's jobs.json. Returns the job's number.

    Raises Refused with sbatch's words.
    """
    array = [] if indices is None else [f"--array={ranges(indices)}{f'%{at_once}' if at_once else ''}"]
    done = _ask(["sbatch", "--parsable", *array, str(script)])
    number = done.stdout.strip().split(";")[0]
    if done.returncode or not number.isdecimal():
        raise Refused(f"sbatch refuses {script}: {(done.stderr or done.stdout).strip()}")
    jobs = submitted(directory)
    jobs.append({"job_id": number, "points": indices, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
    keeping.write_whole(directory / "jobs.json", json.dumps(jobs, indent=1) + "\n")
    return number


def submitted(directory):
    """jobs.json."""
    try:
        return keeping.read(directory / "jobs.json", [{"job_id": str}], "when `squeue --me` shows no job of it any more, remove it")
    except FileNotFoundError:
        return []


def queued(directory):
    """What of jobs.json is in the queue: {job: state}, or {point: state} where it is of an array. Raises Refused where Slurm does not answer."""
    jobs = {job["job_id"] for job in submitted(directory)}
    if not jobs:
        return {}
    done = _ask(["squeue", "--noheader", "--array", f"--user={os.getuid()}", "--format=%F|%K|%T"])
    if done.returncode:
        raise Refused(f"squeue does not answer, so nobody knows what is queued: {done.stderr.strip()}")
    found = {}
    for line in done.stdout.splitlines():
        job, index, state = line.strip().split("|")
        if job in jobs:
            found[int(index) if index.isdecimal() else job] = state
    return found


def _ask(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Refused(f"there is no {command[0]} in PATH; --machine laptop runs here, without Slurm") from None


def ranges(indices):
    """1,2,3,7 as 1-3,7."""
    parts, ordered = [], sorted(indices)
    for index in ordered:
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)

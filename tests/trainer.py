"""Runs the trainer as a user would, reads its record, and reports checks. Shared by the drivers under tests/.

Owns: starting `quadrille train` through the launcher, its time limit, the record as plain numpy arrays, what every record promises of
itself, and the report of a driver's checks. All else that is right is the drivers' to say. An input is a dict of sections; it is written
as JSON, which is YAML.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77  # the exit code that says so
# Packages without which a driver does not skip but fail, as in .ci/run: else a proof could be gone and nobody told.
NEEDED = os.environ.get("QUADRILLE_NEEDED", "").split()


def skip_code(why):
    """The exit code of what cannot be checked for that reason."""
    return 1 if any(package in why for package in NEEDED) else SKIPPED


try:
    import h5py
    import numpy
except ImportError as error:
    WHY = f"skipped: {error} for {sys.executable}; on Debian: apt-get install python3-h5py python3-numpy"
    print(WHY)
    sys.exit(skip_code(WHY))

FULL = os.environ.get("QUADRILLE_FULL", "0") not in ("", "0", "OFF")  # whole crosses where usually a part of them is run
LAUNCH = pathlib.Path(__file__).resolve().parents[1] / "jobscripts/launch.sh"


@dataclasses.dataclass
class Result:
    """One finished run: exit code (None when the time limit ended it), what it printed, its seconds and output folder."""

    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    output: pathlib.Path


class Trainer:
    """Runs of one binary in one scratch folder, with one compute thread a rank unless the input says otherwise.

    The user's measured times of collectives are left out.
    """

    def __init__(self, binary, mpirun, folder):
        self.binary = pathlib.Path(binary).resolve()
        self.folder = pathlib.Path(folder)
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "QUADRILLE_COLLECTIVES": ""} | ({"MPIRUN": mpirun} if mpirun else {})
        self.prefix = []  # a command that runs the rest of its arguments under some condition

    def train(self, source, ranks, overrides=(), seconds=60, environment=()):
        """Trains the input `source` (a dict, or a file's text) on `ranks` ranks; its output folder is the scratch folder's own.

        `environment`: variables that this run has beside the trainer's.
        """
        path = self.folder / "run.yaml"
        output = self.folder / "run-output"
        path.write_text(source if isinstance(source, str) else json.dumps(source, indent=1))
        return self.run(["train", path, f"output.directory={output}", *overrides], ranks, output, seconds, environment)

    def run(self, arguments, ranks=1, output=None, seconds=60, environment=()):
        """Runs the binary with any arguments. A single rank needs no launcher, as users start it."""
        begin = time.monotonic()
        process = self.start(arguments, ranks, environment)
        try:
            out, err = process.communicate(timeout=seconds)
            exit_code = process.returncode
        except subprocess.TimeoutExpired:
            out, err = stop(process)
            exit_code = None
        return Result(exit_code, out, err, time.monotonic() - begin, output)

    def start(self, arguments, ranks, environment=()):
        """Starts the binary, in a session of its own, and returns the process."""
        command = [str(part) for part in [self.binary, *arguments]]
        if ranks > 1:
            command = [str(LAUNCH), str(ranks), *command]
        command = [*map(str, self.prefix), *command]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                errors="replace", env=self.environment | dict(environment), cwd=self.folder, start_new_session=True)


def stop(process):
    """Ends a started process, first politely: mpirun then ends its ranks, which are in process groups of their own."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


def read_record(folder, name="run.h5"):
    """The datasets of the folder's record as {path: array}, the root's attributes under "attributes", those of three groups under their names."""
    with h5py.File(folder / name, "r") as file:
        record = {"attributes": dict(file.attrs), "config": dict(file["config"].attrs), "choices": dict(file["choices"].attrs),
                  "environment": dict(file["environment"].attrs)}
        file.visititems(lambda path, item: record.update({path: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return record


def check_ledgers(record):
    """Complaints about what a record promises of itself: planned bytes are measured ones, and times are whole."""
    complaints = []
    pairs = (("memory/predicted_peak", "memory/measured_peak"), ("wire/predicted", "wire/sent"), ("copies/predicted", "copies/moved"))
    for predicted, measured in pairs:
        if not numpy.array_equal(record[predicted], record[measured]):
            where = tuple(numpy.argwhere(record[predicted] != record[measured])[0])
            complaints.append(f"{measured} at {where}: {record[measured][where]}, predicted {record[predicted][where]}")
    reserved, huge, planned = record["memory/reserved"], record["memory/huge_pages"], record["memory/predicted_peak"].sum(axis=2)
    if (reserved < planned).any() or (reserved[planned == 0] != 0).any() or (huge < -1).any() or (huge > reserved).any() or (huge[:, 2] != 0).any():
        complaints.append(f"reserved per tier: {reserved}, of it in huge pages: {huge}, planned: {planned}")
    return complaints + check_times(record)


def check_times(record):
    """Complaints about the time ledger: nothing is charged twice, and the ranks, which step together, agree on how long a step takes."""
    wall, seconds = record["steps/seconds"], record["time/seconds"]  # the first is rank 0's
    spent = seconds.sum(axis=2)
    complaints = []
    if not numpy.allclose(spent[:, 0], wall, rtol=1e-6, atol=1e-9):
        complaints.append(f"the time categories of rank 0 sum to {spent[:, 0].sum():.6f} s, its steps to {wall.sum():.6f} s")
    if (seconds < -1e-9).any():  # `other` is what is left of the step: below zero if a stretch was charged twice
        complaints.append(f"a time category is negative: {seconds.min()} s")
    exposed = [i for i, name in enumerate(record["time/categories"]) if name in (b"exposed_dp", b"exposed_tp", b"exposed_sp", b"exposed_pp")]
    if not numpy.allclose(seconds[:, :, exposed].sum(axis=2), record["wire/exposed"].sum(axis=2), rtol=1e-6, atol=1e-9):
        complaints.append(f"exposed by category {seconds[:, :, exposed].sum(axis=2)[0]} s, by wire axes {record['wire/exposed'].sum(axis=2)[0]} s")
    if not numpy.allclose(spent.sum(axis=0), wall.sum(), rtol=0.5, atol=1):  # loosely: a busy machine may hold up a rank
        complaints.append(f"the steps take {spent.sum(axis=0)} s on the ranks, by their categories, and {wall.sum()} s on rank 0's clock")
    return complaints


def write_counting_text(path, lines=400, seed=1):
    """A text in which position matters: each line counts on from a pseudo-random number, for a pseudo-random while."""
    state = seed
    with open(path, "w") as file:
        for _ in range(lines):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            first, count = state >> 54, 2 + (state >> 40) % 23
            file.write(" ".join(str(first + i) for i in range(count)) + "\n")


def wait_for(condition, seconds):
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def in_a_fresh_folder(arguments, check, prefix, inside="."):
    """What report() wants of a check that takes a Trainer, whose folder has counting.txt, and returns complaints, or why it cannot be made here."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        scratch = pathlib.Path(folder) / inside
        scratch.mkdir(exist_ok=True)
        write_counting_text(scratch / "counting.txt")
        found = check(Trainer(arguments.binary, arguments.mpirun, scratch))
        return ([], found) if isinstance(found, str) else (found, "")


def parse_arguments(description):
    """The arguments that every driver takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", default="build/quadrille", help="the trainer")
    parser.add_argument("--mpirun", help="the launcher's mpirun (default: jobscripts/launch.sh chooses)")
    parser.add_argument("--group", action="append", help="only this group of cases; repeatable")
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    return parser.parse_args()


def report(arguments, checks, what="checks"):
    """Runs the checks that the arguments choose, prints a line for each, and returns the driver's exit code.

    `checks` are pairs of a name and a function; the function returns its complaints and a remark for its line, or raises RuntimeError
    with what there is to say about a run that failed. A remark that begins with "skipped: " says why there was nothing to check; if that
    is so of all of them, the code is SKIPPED; where a package that is missing is NEEDED, it is a failure.
    """
    chosen = [(name, check) for name, check in checks if arguments.filter in name]
    if arguments.list:
        print("\n".join(name for name, _ in chosen))
        return 0
    failed = skipped = 0
    for name, check in chosen:
        try:
            complaints, remark = check()
        except RuntimeError as error:
            complaints, remark = [str(error)], ""
        left_out = not complaints and remark.startswith("skipped: ")
        if left_out and skip_code(remark) != SKIPPED:
            complaints, left_out = [f"QUADRILLE_NEEDED is {' '.join(NEEDED)}"], False
        failed, skipped = failed + bool(complaints), skipped + left_out
        print(f"{'FAILED' if complaints else '-' if left_out else 'ok':6} {name}{': ' if remark else ''}{remark}", flush=True)
        for complaint in complaints:
            print("       " + complaint.replace("\n", "\n       "), flush=True)
    print(f"{len(chosen) - failed - skipped} of {len(chosen)} {what} hold{f', {skipped} skipped' if skipped else ''}")
    return 1 if failed else SKIPPED if chosen and skipped == len(chosen) else 0


def show(result, lines=15):
    """The end of what a run printed, and how to read its exit, for a failure's report."""
    code = "killed at its time limit" if result.exit_code is None else f"exit {result.exit_code}"
    tail = "\n".join((result.stdout[-2000:] + "\n" + result.stderr[-4000:]).strip().splitlines()[-lines:])
    return f"{code} after {result.seconds:.1f} s\n{tail}"

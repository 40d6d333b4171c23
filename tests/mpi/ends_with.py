"""Runs a job that must end with an exit code, and with words on stderr; where the code is 6, of one report.

In the words a .* stands for anything on that line; all else stands for itself. Nothing that the job has started may be left.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time


def processes(program, mark):
    """The ids of the processes of this program that were started with `mark` in their environment, by /proc."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or (entry / "cmdline").read_bytes().split(b"\0")[0].decode() != program:
                continue
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (OSError, UnicodeDecodeError):
            pass
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--code", type=int, required=True)
    parser.add_argument("--words", nargs="*", default=[])
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    program = next(word for word in arguments.command if pathlib.Path(word).name.startswith("test_"))
    job = f"QUADRILLE_TEST_JOB={os.getpid()}"  # other jobs of the program may run at the same time
    os.environ.update([job.split("=")])
    begin = time.monotonic()
    ended = subprocess.run(arguments.command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False)
    seconds = time.monotonic() - begin
    complaints = [] if ended.returncode == arguments.code else [f"exit {ended.returncode}, {arguments.code} was due"]
    for words in arguments.words:
        if not re.search(".*".join(map(re.escape, words.split(".*"))), ended.stderr):
            complaints.append(f"not said: {words}")
    reports = len(re.findall(r"comm\.(?:watchdog|check): ", ended.stderr))
    if reports != (arguments.code == 6):
        complaints.append(f"{reports} reports")
    while (left := processes(program, job.encode())) and time.monotonic() - begin < seconds + 5:
        time.sleep(0.05)
    complaints += [f"left running: {left}"] if left else []
    print(f"exit {ended.returncode} after {seconds:.1f} s\n{ended.stderr[-6000:]}", *complaints, sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

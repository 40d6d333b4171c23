"""The job scripts as users call them: submit.py, sweep.py and attempt.sh, here and in a Slurm of the test's own."""
import functools
import os
import pathlib
import signal
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(__file__).parents[2] / "jobscripts")]
from trainer import in_a_fresh_folder, parse_arguments, report  # noqa: E402

import attempts  # noqa: E402
import files  # noqa: E402
import in_slurm  # noqa: E402
import submitting  # noqa: E402
import sweeping  # noqa: E402

GROUPS = {"files": files.CHECKS, "attempts": attempts.CHECKS, "submit": submitting.CHECKS, "sweep": sweeping.CHECKS, "slurm": in_slurm.CHECKS}


def main():
    arguments = parse_arguments(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that daemons and folders of the tests' own are left behind by no end but SIGKILL
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        del os.environ[name]  # the tests may be run in a job of another Slurm
    checks = [check for group in arguments.group or GROUPS for check in GROUPS[group]]
    inside = "a folder"  # a space in every path
    return report(arguments, [(name, functools.partial(in_a_fresh_folder, arguments, check, "jobs-", inside)) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main())

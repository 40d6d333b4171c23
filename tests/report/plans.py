"""Pages of plans and of two runs that are compared, and what the scripts say where Python packages are missing."""
import csv
import json
import subprocess
import sys

import hand_made  # first: it finds postproc/, or skips
import numpy

import compare
import report
from commands import HERE, call, folder, ids, plan


def plan_that_does_not_fit():
    path = HERE / "refused.json"
    path.write_text(json.dumps(plan(False)))
    code, _, err = call(report, path, "--output", HERE / "refused.html", "--csv", HERE / "refused")
    assert code == 0, err
    page = (HERE / "refused.html").read_text()
    assert ids(page) == ["plan_device", "plan_states", "alternatives_peak", "alternatives"], ids(page)
    for words in ("It does not fit: it needs 200 B more than 800 B on the device tier", "stage 0: 1000 B, of which", "at the op ‘B3 matmul’",
                  "The limit is 800 B: 200 B too little", "2 changes of the input would fit. The cheapest is sharding.zero_stage=1: 700 B"):
        assert words in page, words
    with open(HERE / "refused/alternatives.csv", newline="") as file:
        assert list(csv.reader(file))[2] == ["2", "recompute.granularity=full", "600", "0", "0", "1.31"]


def plans_that_fit_or_are_none():
    for name, content, words in (("fits", plan(True, memory_limit=2000), "leaves 1000 B free"),
                                 ("open", plan(True, memory_limit=None), "No limit was given"),
                                 ("hopeless", plan(False, suggestions=[]), "Nothing that was tried fits")):
        path = HERE / f"{name}.json"
        path.write_text(json.dumps(content))
        code, _, err = call(report, path, "--output", HERE / f"{name}.html")
        assert code == 0 and words in (HERE / f"{name}.html").read_text(), f"{name}: exit {code}, {err}"
    (HERE / "other.json").write_text('{"programs": []}')
    (HERE / "broken.json").write_text("{")
    for name, words in (("other", "it is without fits, suggestions"), ("broken", "is no plan")):
        code, _, err = call(report, HERE / f"{name}.json", "--output", HERE / "never.html")
        assert code == 5 and words in err, f"{name}: exit {code}, {err}"


def binaries_that_plan():
    """--ranks 0 is handed on, what prints no plan is no quadrille, and a page's folder must be there."""
    source, binary = HERE / "asked.yaml", HERE / "planner"
    source.write_text("model: {}")
    for printed, code, words in (("", 2, "is no quadrille"), ("{}", 5, "no plan (quadrille plan --json)"), (json.dumps(plan(True)), 0, "")):
        (HERE / "printed").write_text(printed)
        binary.write_text(f'#!/bin/sh\necho "$@" >"{HERE}/words"\ncat "{HERE}/printed"\n')
        binary.chmod(0o755)
        found, _, err = call(report, source, "--ranks", 0, "--quadrille", binary, "--output", HERE / "asked.html")
        assert found == code and words in err and "--ranks 0" in (HERE / "words").read_text(), f"exit {found}, {err}"
    found, _, err = call(report, source, "--quadrille", binary, "--output", HERE / "nowhere/asked.html")
    assert found == 5 and "nowhere/asked.html cannot be written" in err and not (HERE / "nowhere").exists(), f"exit {found}, {err}"


def two_runs_of_no_time():
    """What is 0 is not divided by."""
    for name in ("idle", "still"):
        nothing = hand_made.tables()
        for table in ("steps/tokens", "steps/seconds", "time/seconds"):
            nothing[table] = 0 * nothing[table]
        hand_made.write(folder(name) / "run.h5", nothing)
    code, out, err = call(compare, HERE / "idle", HERE / "still")
    assert code == 0 and "not measured" in out, f"exit {code}: {out}{err}"
    code, _, err = call(report, HERE / "idle")
    page = (HERE / "idle/report.html").read_text()
    assert code == 0 and "whose time was not measured" in page and "The time of the steps was not measured" in page, f"exit {code}: {err}"


def a_python_without_packages():
    """It is said where they are, and --help helps."""
    for name in ("report.py", "compare.py", "trace.py"):
        done = subprocess.run([sys.executable, "-S", hand_made.POSTPROC / name, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and f"{name} " in done.stdout and "/usr/bin/python3 then has" in done.stderr, (name, done)


def two_runs_compared():
    a, b = folder("a"), folder("b")
    hand_made.write(a / "run.h5")
    other = hand_made.tables()
    other["steps/loss"] = numpy.array([5.5, 5.25, 4.5])
    hand_made.write(b / "run.h5", other, config=hand_made.INPUT.replace("tp: 2", "tp: 1"))
    code, out, err = call(compare, a, b, "--html", HERE / "ab.html", "--csv", HERE / "ab")
    assert code == 0 and not err, err
    for words in ("losses: equal bit for bit up to step 1, different from step 2 on: 5 and 5.25; at most 0.05 relative, at step 2",
                  "gradient norms: equal bit for bit in all 3 common steps (steps 1 to 3)", "data: the same tokens", "grid.tp  2  1",
                  "Machine and program, where they differ: nowhere"):
        assert words in out, f"‘{words}’ is not in:\n{out}"
    with open(HERE / "ab/losses.csv", newline="") as file:
        assert list(csv.reader(file))[2] == ["2", "5.0", "5.25", "0.05"]
    (HERE / "of-a-sweep").mkdir()
    (HERE / "of-a-sweep/sweep.json").write_text("{}")
    code, out, err = call(compare, a, HERE / "of-a-sweep")
    assert code == 2 and "it is a sweep's, whose points are" in err, err
    assert {"losses", "times_picture", "inputs", "speeds", "memories", "movements"} <= set(ids((HERE / "ab.html").read_text()))
    assert (HERE / "ab/times.csv").exists()
    code, out, err = call(compare, a, HERE / "absent")
    assert code == 2 and "no such file" in err, err
    short = folder("short")
    hand_made.write(short / "run.h5", hand_made.tables(steps=0, evaluations=0))
    code, out, err = call(compare, a, short, "--html", HERE / "short.html")
    assert code == 0 and "no step in common" in out, f"exit {code}: {out}{err}"


CHECKS = (plan_that_does_not_fit, plans_that_fit_or_are_none, binaries_that_plan, two_runs_of_no_time, a_python_without_packages, two_runs_compared)

if __name__ == "__main__":
    sys.exit(hand_made.run_checks(CHECKS))

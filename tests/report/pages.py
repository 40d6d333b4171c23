"""Pages as the command line makes them, of ordinary and of odd records; and the sentences and exit codes for what is none.

Records are made by hand; no browser is needed: what one sees of a page is run.py's to say.
"""
import csv
import fcntl
import json
import math
import os
import pathlib
import re
import sys

import hand_made  # first: it finds postproc/, or skips
import h5py
import numpy

import axes
import compare
import look
import page as page_module
import record
import report
from commands import HERE, built, call, folder, ids, page_of, plan

WITH_STEPS = ["loss", "gradients", "speed", "time_by_rank", "time_by_step"]


def whole_run():
    made = folder("whole")
    hand_made.write(made / "run.h5")
    hand_made.write_trace(made / "trace.h5")
    page = page_of(made, "--figures", made / "figures", "--csv", made / "csv")
    wanted = ["summary", *WITH_STEPS, "bubble", "pipeline", "queues", "memory_books", "memory_by_rank", "memory_process", "memory_over_step", "moves",
              "environment", "choices"]
    assert ids(page) == wanted, ids(page)
    assert "http://" not in page and "https://" not in page and "<script" not in page, "the page points at the network, or has a script"
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    drawn = re.findall(r"<img ", page)
    assert len(drawn) == 12 and len([c for c in captions if len(c) > 40]) >= len(drawn), f"{len(drawn)} pictures, captions {captions}"
    pictures = {path.name for path in (made / "figures").iterdir()}
    assert {"loss.png", "loss.pdf", "pipeline.png", "captions.txt"} <= pictures, pictures
    with open(made / "csv/time_by_rank.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:6] == ["rank", "dp", "tp", "pp", "sp", "compute [s]"] and rows[1][5] == "4.0", rows[:2]


def axes_have_units():
    """Of the pages of a run, of a plan and of two runs that are compared, each figure; and a picture without them is found."""
    made = folder("axes")
    copied = hand_made.tables()
    copied["copies/moved"][:] = 1024
    hand_made.write(made / "run.h5", copied)
    hand_made.write_trace(made / "trace.h5")
    (HERE / "axes.json").write_text(json.dumps(plan(False)))
    run = [record.load(made)]
    for count, page in ((13, built(made)), (2, built(HERE / "axes.json"))):
        assert len(page.figures()) == count and not axes.of_page(page), (count, [name for name, _ in page.figures()], axes.of_page(page))
    assert not axes.of_page(compare.page(["A", "B"], run, run))
    canvas, plots = look.axes(columns=2)
    plots[0, 0].set(xlabel="step", ylabel="loss")
    plots[0, 1].set(xlabel="time [s]")
    found = axes.complaints("bare", canvas)
    assert len(found) == 2 and "‘loss’, which has no [unit]" in found[0] and "y axis of plot 2 has numbers and no label" in found[1], found


def one_step_of_one_rank():
    made = folder("one")
    data = hand_made.tables(steps=1, coordinates=((0, 0, 0, 0),), axes=(), evaluations=0)
    hand_made.write(made / "run.h5", data, config="train: {steps: 1}")
    page = page_of(made)
    assert ids(page) == ["summary", *WITH_STEPS, "memory_books", "memory_process", "environment", "choices"], ids(page)
    for words in ("Nothing was held out", "Nothing moved between ranks", "output.trace=true", "of the only step"):
        assert words in page, words


def no_step():
    made = folder("none")
    data = hand_made.tables(steps=0, evaluations=0)
    for name in ("memory/measured_peak", "wire/sent"):
        data[name] = numpy.zeros_like(data[name])
    hand_made.write(made / "run.h5", data, exit_code=75, complete=0)
    page = page_of(made)
    assert ids(page) == ["summary", "memory_books", "memory_by_rank", "memory_process", "moves", "environment", "choices"], ids(page)
    for words in ("No step was recorded.", "stopped on purpose", "Nothing was measured", "these are the plan&#x27;s bytes"):
        assert words in page, words


def losses_that_are_not_numbers():
    made = folder("nan")
    data = hand_made.tables()
    data["steps/loss"] = data["steps/grad_norm"] = numpy.full(3, math.nan)
    hand_made.write(made / "run.h5", data, exit_code=4, complete=0)
    page = page_of(made)
    assert "No loss is finite" in page and "Training diverged" in page and set(WITH_STEPS) <= set(ids(page))


def many_ranks_and_steps():
    made = folder("many")
    places = [(d, t, p, 0) for p in range(4) for d in range(8) for t in range(2)]
    hand_made.write(made / "run.h5", hand_made.tables(steps=200, coordinates=places, axes=("dp", "tp", "pp", "dp+sp"), evaluations=100))
    page = page_of(made)
    assert "64 ranks" in page and "rows are in time_by_step.csv" in page


def a_broken_trace_costs_its_figures():
    made = folder("trace")
    hand_made.write(made / "run.h5")
    (made / "trace.h5").write_text("nothing")
    page = page_of(made)
    assert "cannot be read" in page and "pipeline" not in ids(page) and set(WITH_STEPS) <= set(ids(page))


def two_runs_on_one_page():
    for name in ("left", "right"):
        hand_made.write(folder(name) / "run.h5")
    output = HERE / "two.html"
    code, _, err = call(report, HERE / "left", HERE / "right", "--output", output)
    assert code == 0, err
    found = ids(output.read_text())
    assert len(found) == len(set(found)) and {"1-left-loss", "2-right-loss"} <= set(found), found


def a_run_that_went_on():
    made = folder("chain")
    hand_made.write(made / "run.h5")
    later = hand_made.tables(steps=2, coordinates=((0, 0, 0, 0), (0, 1, 0, 0)))
    later["steps/step"] = numpy.array([3, 4])
    hand_made.write(made / "run-2.h5", later, continues="run.h5", continues_after=2)
    assert "run-2.h5 goes on after step 2 on tp 2, from run.h5." in page_of(made)


def what_is_no_record():
    made = folder("wrong")
    whole = hand_made.write(made / "run.h5")
    older = hand_made.write(made / "older.h5", schema="quadrille-run-0")
    poorer = hand_made.write(made / "poorer.h5", drop=("steps/loss",))
    uneven = hand_made.tables()
    uneven["steps/loss"] = uneven["steps/loss"][:2]
    uneven = hand_made.write(made / "uneven.h5", uneven)
    cut, words = made / "cut.h5", made / "words.h5"
    cut.write_bytes(whole.read_bytes()[:5000])
    words.write_text("no HDF5")
    trace = hand_made.write_trace(made / "trace.h5")
    (made / "empty").mkdir()
    (made / "of-runs/a/run/checkpoints/step-00000004").mkdir(parents=True)
    (made / "of-runs/b").mkdir()
    (made / "of-runs/c").mkdir()
    for name in ("a/run", "b", "c"):
        hand_made.write(made / "of-runs" / name / "run.h5")
    for path, code, sentence in ((older, 5, "another layout (quadrille-run-0)"), (poorer, 5, "of another version"),
                                 (uneven, 5, "steps/loss has 2 in place of 3 along step, by steps/step"), (cut, 5, "cannot be read"),
                                 (words, 5, "cannot be read"),
                                 (trace, 2, "is a trace"), (made / "absent", 2, "no such file"), (made / "empty", 2, "holds no run.h5"),
                                 (made / "of-runs", 2, "it holds 2 runs, such as"), (made / "of-runs/a", 2, "the run may be"),
                                 (made / "of-runs/a/run/checkpoints", 2, "it holds checkpoints, and the run may be"),
                                 (pathlib.Path(__file__), 2, "is neither a run")):
        found, out, err = call(report, path, "--output", made / "never.html")
        assert found == code and sentence in err and len(err.splitlines()) == 1 and not out, f"{path.name}: exit {found}, {err}"
    assert not (made / "never.html").exists()
    found, _, err = call(report, whole, "--output", whole / "below-a-file.html")
    assert found == 5 and "cannot be written" in err, f"exit {found}, {err}"
    assert call(report)[0] == 2 and call(report, "--nonsense")[0] == 2 and call(report, "--help")[0] == 0


def the_directory_of_a_job():
    """Its run is in output/; where it has left no record there is its plan."""
    made = folder("job")
    (made / "plan.json").write_text(json.dumps(plan(False)))
    assert ids(page_of(made))[0] == "plan_device"
    (made / "output").mkdir()
    hand_made.write(made / "output/run.h5")
    hand_made.write_trace(made / "output/trace.h5")
    page = page_of(made)
    assert "<h1>Run job</h1>" in page and "pipeline" in ids(page), ids(page)


def a_figure_without_a_caption():
    made = page_module.Page("title")
    made.chapter("chapter")
    try:
        made.add(page_module.Figure("bare", "Bare", " ", None))
    except ValueError as error:
        assert "bare has no caption" in str(error), error
    else:
        raise AssertionError("it was taken")


def a_run_that_was_killed():
    """Where nobody holds its directory, what takes a quarter less of its fullest rank's 1536 bytes is planned; of one that runs it is not."""
    made, binary = folder("killed"), HERE / "quadrille"
    hand_made.write(made / "run.h5", exit_code=-1, complete=0)
    (HERE / "plan.json").write_text(json.dumps(plan(False)))
    binary.write_text(f'#!/bin/sh\necho "$@" >"{HERE}/asked"\ncat "{HERE}/plan.json"\nexit 3\n')
    binary.chmod(0o755)
    page = page_of(made, "--quadrille", binary)
    assert "device.memory_limit=1152 --ranks 4" in (HERE / "asked").read_text(), (HERE / "asked").read_text()
    assert ids(page)[-2:] == ["alternatives_peak", "alternatives"] and "If it was killed for memory" in page, ids(page)
    page = page_of(made, "--quadrille", HERE / "nowhere")
    assert "Nothing is said of what would take less memory" in page and "alternatives" not in ids(page), ids(page)
    held = os.open(made, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert "If it was killed" not in page_of(made, "--quadrille", binary)
    os.close(held)


def words_are_never_markup():
    """Names of an input or a machine are text on the page, never markup."""
    made = folder("markup")
    path = hand_made.write(made / "run.h5", config="model: {name: '<script>alert(1)</script>'}")
    with h5py.File(path, "r+") as file:
        file["environment"].attrs["device"] = "<b>bold</b> & co"
    page = page_of(made)
    assert "<script" not in page and "<b>bold" not in page and "&lt;b&gt;bold&lt;/b&gt; &amp; co" in page


CHECKS = (whole_run, axes_have_units, one_step_of_one_rank, no_step, losses_that_are_not_numbers, many_ranks_and_steps,
          a_broken_trace_costs_its_figures, two_runs_on_one_page, a_run_that_went_on, what_is_no_record, the_directory_of_a_job,
          a_figure_without_a_caption, a_run_that_was_killed, words_are_never_markup)

if __name__ == "__main__":
    sys.exit(hand_made.run_checks(CHECKS))

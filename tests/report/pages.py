"""Pages as the command line makes them: of ordinary and of odd records, of plans, of two runs; and the sentences and exit codes for what is none.

Records are made by hand; no browser is needed: what one sees of a page is run.py's to say.
"""
import contextlib
import csv
import fcntl
import io
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import hand_made  # first: it finds postproc/, or skips
import h5py
import numpy

import axes
import compare
import look
import page as page_module
import record
import report

FOLDER = tempfile.TemporaryDirectory(prefix="pages-")
HERE = pathlib.Path(FOLDER.name)


def call(program, *arguments):
    """(exit code, stdout, stderr) of report.main or compare.main."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = program.main([str(a) for a in arguments])
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def folder(name):
    made = HERE / name
    made.mkdir()
    return made


def page_of(path, *arguments):
    """The text of the page that report.py makes of a run's folder."""
    code, _, err = call(report, path, *arguments)
    assert code == 0 and err == "", f"exit {code}: {err}"
    return (path / "report.html").read_text()


def ids(page):
    return re.findall(r'<figure id="([^"]+)">', page)


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


def built(*paths):
    """The page of report.py itself, before it is written."""
    options = report.parse(list(map(str, paths)))
    return report.build(options.paths, options)


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
                                 (uneven, 5, "table loss has the shape (2,)"), (cut, 5, "cannot be read"), (words, 5, "cannot be read"),
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


def plan(fits, **changes):
    """What `plan --json` prints, of two stages."""
    peak = {"device": 1000, "host": 0, "nvme": 0}
    none = dict.fromkeys(peak, 0)
    books = {tier: dict.fromkeys(hand_made.BOOKS, 0) for tier in peak}
    books["device"] = dict.fromkeys(hand_made.BOOKS[:4], 200) | {"buffers": 100}
    program = {"coordinate": {"dp": 0, "tp": 0, "pp": 0, "sp": 0}, "count": 2, "operations": 10, "layers": 2, "peak_bytes": peak,
               "peak_op": "B3 matmul", "books": books, "packing": none | {"device": 100}, "states": {"weights": 200, "masters": 0, "moments": 300}}
    second = program | {"coordinate": program["coordinate"] | {"pp": 1}, "peak_bytes": peak | {"device": 900}, "packing": none}
    offers = [{"change": "sharding.zero_stage=1", "peak_bytes": 700, "host_bytes": 0, "nvme_bytes": 0, "cost": 1.0},
              {"change": "recompute.granularity=full", "peak_bytes": 600, "host_bytes": 0, "nvme_bytes": 0, "cost": 1.31}]
    bubble = {"schedule": "1f1b", "microbatches": 4, "bubble_fraction": 0.2}
    return {"parameters": 1000, "ranks": 4, "programs": [program, second], "pipeline": bubble, "memory_limit": 800, "host_memory_limit": None,
            "fits": fits, "suggestions": [] if fits else offers} | changes


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


def words_are_never_markup():
    """Names of an input or a machine are text on the page, never markup."""
    made = folder("markup")
    path = hand_made.write(made / "run.h5", config="model: {name: '<script>alert(1)</script>'}")
    with h5py.File(path, "r+") as file:
        file["environment"].attrs["device"] = "<b>bold</b> & co"
    page = page_of(made)
    assert "<script" not in page and "<b>bold" not in page and "&lt;b&gt;bold&lt;/b&gt; &amp; co" in page


CHECKS = (whole_run, axes_have_units, one_step_of_one_rank, no_step, losses_that_are_not_numbers, many_ranks_and_steps,
          a_broken_trace_costs_its_figures, two_runs_on_one_page, a_run_that_went_on, what_is_no_record, plan_that_does_not_fit,
          plans_that_fit_or_are_none, the_directory_of_a_job, a_figure_without_a_caption, a_run_that_was_killed, a_python_without_packages,
          two_runs_compared, words_are_never_markup)

if __name__ == "__main__":
    sys.exit(hand_made.run_checks(CHECKS))

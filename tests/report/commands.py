"""The postproc scripts called as functions, the folders that they are called on, and what they leave. Shared by the checks of their pages."""
import contextlib
import io
import pathlib
import re
import tempfile

import hand_made  # first: it finds postproc/, or skips

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


def built(*paths):
    """The page of report.py itself, before it is written."""
    options = report.parse(list(map(str, paths)))
    return report.build(options.paths, options)


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

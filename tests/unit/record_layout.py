"""The record as plain h5py sees it is the record as src/record/README.md describes it, and postproc/ reads it.

    record_layout.py SOURCE_ROOT WRITER      WRITER: record_layout_sample
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

root, writer = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(root / "postproc"))
import layout  # noqa: E402
import record  # noqa: E402
import trace  # noqa: E402

SIZES = {"rank": 2, "step": 3, "evaluation": 1, "category": 13, "tier": 3, "book": 5, "axis": 2, "queue": 3, "4": 4}  # of the sample


def documented():
    """path → (shape, type, unit) of the table of datasets."""
    rows = re.findall(r"^\| `(/\w+/\w+)` \| ([^|]+) \| (\w+) \| (\w+) \|$", (root / "src/record/README.md").read_text(), re.M)
    return {path: (shape.strip(), kind, unit) for path, shape, kind, unit in rows}


def check_datasets(file):
    found = {}
    file.visititems(lambda name, item: found.update({"/" + name: item}) if isinstance(item, h5py.Dataset) else None)
    table = documented()
    assert set(found) == set(table), f"documented or stored, not both: {sorted(set(found) ^ set(table))}"
    for path, (shape, kind, unit) in table.items():
        data = found[path]
        wanted = () if shape == "scalar" else tuple(SIZES[name] for name in shape.split(", "))
        assert data.shape == wanted, f"{path}: shape {data.shape}, documented {wanted}"
        assert data.attrs["unit"] == unit, f"{path}: unit {data.attrs['unit']}, documented {unit}"
        assert len(data.attrs["description"]) > 10, f"{path}: no description"
        types = {"int64": numpy.dtype("<i8"), "double": numpy.dtype("<f8"), "string": numpy.dtype("O")}
        assert data.dtype == types[kind], f"{path}: type {data.dtype}, documented {kind}"


def check_rows():
    """postproc/layout.py has a row for each documented dataset, of its shape and type, and for each attribute."""
    kinds = {"i8": "int64", "f8": "double", "O": "string"}
    rows = {"/" + row.path: (", ".join(row.dims.split()) or "scalar", kinds[row.kind.type]) for row in layout.RUN if isinstance(row, layout.Dataset)}
    wanted = {path: (shape, kind) for path, (shape, kind, _) in documented().items()}
    assert rows == wanted, sorted(set(rows.items()) ^ set(wanted.items()))
    text = (root / "src/record/README.md").read_text().split("## Datasets")[0]
    missing = [row for row in layout.RUN if isinstance(row, layout.Attribute) and f"`{row.name}`" not in text]
    assert not missing, missing


def check_attributes(file):
    for name in ("schema", "version", "git_commit", "command", "start_time"):
        assert isinstance(file.attrs[name], str) and file.attrs[name], name
    assert file.attrs["schema"] == "quadrille-run-1"
    assert file.attrs["exit_code"] == 0 and file.attrs["complete"] == 1
    assert file["config"].attrs["yaml"].startswith("model:")
    assert file["environment"].attrs["hosts"] == "alpha,beta"
    assert file["wire/sent"].attrs["estimated"] == 0


def check_loading(directory):
    run = record.load(directory)
    assert run.loss.tolist() == [5.25, 5.0, 4.75] and run.ranks == 2
    assert run.choices == {"grid.order": "tp-dp-sp-pp, since it is a sample"}
    assert run.coordinates.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert run.data_hash[0] == -15  # 64 bits as a signed number
    assert abs(run.seconds_of("optimizer")[1, 1] - 2.015) < 1e-12
    assert run.measured_peak[:, run.tiers.index("host"), run.books.index("weights")].tolist() == [2**40 + 5, 2**40 + 20]
    assert run.reserved.tolist() == [[1 << 18, 1 << 17, 1 << 30], [1 << 19, 1 << 18, 0]]
    assert run.huge_pages.tolist() == [[1 << 17, -1, 0], [1 << 18, 1 << 17, 0]]
    assert run.shared.tolist() == [0, 1 << 18]
    assert run.wire_axes == ["tp", "dp+sp"] and run.wire_sent.tolist() == [[5, 6], [7, 8]]
    assert run.wire_busy[0].tolist() == [[1.01, 1.02], [1.07, 1.08]] and run.wire_exposed[0].tolist() == [[1.03, 1.04], [1.09, 1.1]]
    assert run.compute_beside[1].tolist() == [2.05, 2.11] and run.compute_alone[1].tolist() == [2.06, 2.12]
    assert run.copy_queues == ["copy_in", "copy_out", "disk"] and run.copies_moved.tolist() == [[13, 14, 0], [15, 16, 0]]
    assert run.tokens_per_second == 512 and run.model_flops == 1e21 and run.complete


def check_timeline(directory):
    assert trace.main([str(directory)]) == 0
    events = json.loads((directory / "trace.json").read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["rank 1 dp0 tp1 pp0 sp0"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["matmul", "all_reduce"]
    last = [e for e in events if e["ph"] == "X"][-1]
    assert last["pid"] == 1 and last["dur"] == 1.5e6 and last["args"]["step"] == 7
    counters = [e for e in events if e["ph"] == "C"]  # of the tiers in use
    assert [(e["name"], e["pid"], e["ts"]) for e in counters] == [("device memory", 1, 5e5)]
    assert counters[0]["args"] == {"weights": 8, "gradients": 0, "optimizer": 0, "activations": 4, "buffers": 0}


def check_timeline_answers(directory):
    """What is no trace is answered with one sentence, and --help with the usage."""
    script, empty = root / "postproc/trace.py", directory / "empty"
    empty.mkdir()
    for argument, code, stream, words in (("--help", 0, "stdout", "output.trace=true"), ("--nonsense", 2, "stderr", "trace.py RUN [FILE.json]"),
                                          (empty, 2, "stderr", "holds no trace.h5; run with output.trace=true"),
                                          (directory / "run.h5", 2, "stderr", "is a run's record"), (directory / "none", 2, "stderr", "no such file"),
                                          (script, 5, "stderr", "cannot be read")):
        result = subprocess.run([sys.executable, script, argument], capture_output=True, text=True, check=False)
        said = getattr(result, stream)
        assert result.returncode == code and words in said and "Traceback" not in result.stderr, f"{argument}: {result}"
        assert len(said.strip().splitlines()) == 1 or argument in ("--help", "--nonsense"), f"{argument}: {said}"


with tempfile.TemporaryDirectory() as name:
    directory = pathlib.Path(name)
    subprocess.run([writer, name], check=True)
    with h5py.File(directory / "run.h5", "r") as file:
        check_datasets(file)
        check_attributes(file)
    check_rows()
    check_loading(directory)
    check_timeline(directory)
    check_timeline_answers(directory)
print(f"{len(documented())} datasets as documented")

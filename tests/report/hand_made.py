"""Records and traces made by hand with h5py, for tests that know every number in them. The layout is src/record/README.md's.

The default is a run of 4 ranks, tp 2 and pp 2, of 3 steps of 10 s (the first of 20 s), whose numbers a head can check.
"""
import importlib
import os
import pathlib
import sys

try:
    import h5py
    import numpy

    for name in ("matplotlib", "yaml"):
        importlib.import_module(name)
except ImportError as error:
    print(f"skipped: {error} for {sys.executable}; on Debian: apt-get install python3-h5py python3-matplotlib python3-yaml")
    sys.exit(1 if "python3-matplotlib" in os.environ.get("QUADRILLE_NEEDED", "") else 77)  # as of trainer.py

POSTPROC = pathlib.Path(__file__).resolve().parents[2] / "postproc"
sys.path.insert(0, str(POSTPROC))

CATEGORIES = ["compute", "optimizer", "exposed_dp", "exposed_tp", "exposed_sp", "exposed_pp", "pipeline_idle", "exposed_copy", "exposed_disk", "data",
              "checkpoint", "compression", "other"]
TIERS, BOOKS, QUEUES = ["device", "host", "nvme"], ["weights", "gradients", "optimizer", "activations", "buffers"], ["copy_in", "copy_out", "disk"]
INPUT = """model: {num_layers: 4}
grid: {dp: 1, tp: 2, pp: 2, sp: 1}
pipeline: {schedule: 1f1b, virtual_stages: 1}
sharding: {zero_stage: 0}
train: {global_batch_size: 16, micro_batch_size: 4, gradient_accumulation_steps: 4, steps: 3, precision: fp32, clip_grad: 1.0}
device: {memory_limit: 2048}
"""


def columns(steps):
    """The columns of /steps: a loss that falls by a half a step, 512 tokens a step, 20 s and then 10 s."""
    number = numpy.arange(1, steps + 1)
    return {"step": number, "loss": 6 - 0.5 * number, "grad_norm": 2.0 / number, "clip_factor": numpy.minimum(1, number / 2.0),
            "learning_rate": 1e-3 * number, "loss_scale": numpy.ones(steps), "tokens": numpy.full(steps, 512),
            "seconds": numpy.where(number == 1, 20.0, 10.0),
            "data_hash": 7 * number, "residual_norm": numpy.zeros(steps)}


def times(steps, coordinates):
    """[step, rank, category]: stage 0 computes 4 s and idles 4 s, later ones compute 6 s and idle 2 s; all wait 1 s for tp and update for 1 s. The
    first step takes twice as long."""
    table = numpy.zeros((steps, len(coordinates), len(CATEGORIES)))
    for rank, place in enumerate(coordinates):
        table[:, rank, 0] = 4 + 2 * min(1, place[2])
        table[:, rank, 6] = 4 - 2 * min(1, place[2])
        table[:, rank, 1] = table[:, rank, 3] = 1
    table[:1] *= 2
    return table


def tables(steps=3, coordinates=((0, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 1, 0)), axes=("tp", "pp"), evaluations=1):
    """{path: array} of a whole record."""
    ranks = len(coordinates)
    peaks = numpy.zeros((ranks, 3, 5), numpy.int64)
    peaks[:, 0] = [100, 200, 300, 400, 24]
    peaks[-1, 0, 3] += 512  # the last rank is the fullest: 1536 bytes
    wire = numpy.tile(numpy.arange(1, len(axes) + 1) * 1000, (ranks, 1)).reshape(ranks, len(axes))
    busy = numpy.full((steps, ranks, len(axes)), 2.0)
    found = {f"steps/{name}": values for name, values in columns(steps).items()}
    found |= {"grid/coordinates": numpy.array(coordinates), "grid/hosts": ["alpha"] * ranks}
    found |= {"evaluation/step": numpy.arange(1, evaluations + 1) * 2, "evaluation/loss": numpy.full(evaluations, 5.25),
              "evaluation/seconds": numpy.full(evaluations, 0.5)}
    found |= {"time/categories": CATEGORIES, "time/seconds": times(steps, coordinates)}
    found |= {"memory/tiers": TIERS, "memory/books": BOOKS, "memory/predicted_peak": peaks, "memory/measured_peak": peaks,
              "memory/reserved": numpy.tile([2048, 0, 0], (ranks, 1)), "memory/huge_pages": numpy.tile([0, -1, 0], (ranks, 1)),
              "memory/shared": numpy.full(ranks, 100), "memory/process_peak": numpy.full(ranks, 4096)}
    found |= {"wire/axes": list(axes), "wire/predicted": wire, "wire/sent": wire, "wire/uncompressed": wire, "wire/busy": busy,
              "wire/exposed": busy / 2, "wire/compute_beside": numpy.full((steps, ranks), 2.0),
              "wire/compute_alone": numpy.full((steps, ranks), 1.5)}
    found |= {"copies/queues": QUEUES, "copies/predicted": numpy.zeros((ranks, 3), numpy.int64), "copies/moved": numpy.zeros((ranks, 3), numpy.int64)}
    found |= {"flops/model": numpy.float64(1e12), "flops/hardware": numpy.float64(2e12)}
    return found


def write(path, data=None, config=INPUT, drop=(), **attributes):
    """Writes a record: `data` as of tables(), `attributes` of the root in place of the defaults."""
    root = {"schema": "quadrille-run-1", "version": "0.1.0", "git_commit": "abc", "command": "quadrille train by-hand.yaml",
            "start_time": "2026-01-31T12:00:00Z", "exit_code": 0, "complete": 1} | attributes
    with h5py.File(path, "w") as file:
        _put(file, {name: values for name, values in (data or tables()).items() if name not in drop})
        file["wire/sent"].attrs["estimated"] = 0
        file.attrs.update(root)
        file.create_group("config").attrs["yaml"] = config
        file.create_group("choices").attrs["grid.order"] = "tp-sp-dp-pp, since it is made by hand"
        file.create_group("environment").attrs.update({"hosts": "alpha", "device": "cpu"})
    return path


# (rank, label, begin, end) of step 2 and of compute; two microbatches through two stages, with forward 1 s and backward 2 s.
PIPELINE = [(0, "F embedding embedding@0", 100, 100.5), (0, "F layers.0 matmul@0", 100.5, 101), (0, "F layers.0 matmul@1", 101, 102),
            (2, "F layers.2 matmul@0", 101, 102), (2, "B layers.2 matmul~@0", 102, 103), (2, "W layers.2 matmul@0", 103, 104),
            (2, "F layers.2 matmul@1", 104, 105), (2, "B layers.2 matmul@1", 105, 107),
            (0, "B layers.0 matmul@0", 104, 106), (0, "B layers.0 matmul@1", 107, 109), (0, "S layers.0 adamw", 109, 110)]
# (rank, tier, label, time, bytes by book) of step 2
MEMORY = [(3, 0, "F embedding embedding@0", 100, [100, 0, 300, 0, 0]), (3, 0, "F layers.0 matmul@1", 102, [100, 200, 300, 912, 24]),
          (3, 0, "S layers.0 adamw", 109, [100, 200, 300, 0, 0]), (3, 1, "S layers.0 adamw", 109, [0, 0, 0, 0, 0])]


def write_trace(path, events=PIPELINE, memory=MEMORY, **attributes):
    """Writes a trace: step 1 is step 2's events 50 s earlier; a tp move lies under each rank's first event."""
    labels = sorted({event[1] for event in events} | {row[2] for row in memory} | {"F layers.0 redistribute@0"})
    rows = [(step, rank, 0, labels.index(label), begin - shift, end - shift)
            for step, shift in ((1, 50), (2, 0)) for rank, label, begin, end in events]
    rows += [(2, rank, 1, labels.index("F layers.0 redistribute@0"), 100.25, 101.25) for rank in (0,)]
    with h5py.File(path, "w") as file:
        _put(file, {"trace/queues": ["compute", "tp"], "trace/ops": labels, "memory/tiers": TIERS, "memory/books": BOOKS})
        names = (("step", int), ("rank", int), ("queue", int), ("op", int), ("begin", float), ("end", float))
        _put(file, {f"trace/{name}": numpy.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(names)})
        _put(file, {"memory/rank": numpy.array([m[0] for m in memory], int), "memory/tier": numpy.array([m[1] for m in memory], int),
                    "memory/op": numpy.array([labels.index(m[2]) for m in memory], int), "memory/time": numpy.array([m[3] for m in memory], float),
                    "memory/bytes": numpy.array([m[4] for m in memory], int).reshape(len(memory), 5)})
        file.attrs.update({"schema": "quadrille-trace-1"} | attributes)
    return path


def _put(file, data):
    for name, values in data.items():
        words = isinstance(values, list)
        file.create_dataset(name, data=values, dtype=h5py.string_dtype() if words else None)


def run_checks(checks):
    """Runs functions that raise AssertionError where something is wrong; the exit code."""
    failed = 0
    for check in checks:
        try:
            check()
            print("ok    ", check.__name__, flush=True)
        except AssertionError as error:
            failed += 1
            line = error.__traceback__.tb_next or error.__traceback__
            print(f"FAILED {check.__name__}, line {line.tb_lineno}: {error}", flush=True)
    return failed > 0

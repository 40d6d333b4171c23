"""A checkpoint's bytes, saved by a run, against fio, which only writes as many: the same file system, in turn, both until all is on the disk.

Both make a new file of the same size. fio's time has no removal of an older one in it, ours what the step before is too short for: a run removes
behind its next step, and the next save waits for what is left of that. Every other repetition begins with fio, so that what one leaves of the
machine's memory and disk meets the other as often.
"""
import json
import pathlib
import shutil
import subprocess
import tempfile

import shapes

BLOCK_SIZE = 1 << 20
SAVES = 6
WAYS = {"buffered": ["--ioengine=psync", "--direct=0", "--end_fsync=1"], "direct": ["--ioengine=psync", "--direct=1", "--end_fsync=1"]}


def fio_seconds(folder, size, options):
    """Of writing a new file of so many bytes, from its first to its end, synced; none where fio cannot."""
    file = folder / "fio-file"
    command = ["fio", "--name=save", f"--filename={file}", "--rw=write", f"--bs={BLOCK_SIZE}", f"--size={size}", *options, "--output-format=json"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    file.unlink(missing_ok=True)
    if result.returncode != 0:
        return None
    return json.loads(result.stdout[result.stdout.index("{"):])["jobs"][0]["job_runtime"] * 1e-3


def our_seconds(bench, folder, ranks):
    """The bytes of a checkpoint of the training state, and the seconds of its slowest rank: of the last but one of some saves, each of which replaces
    the one before it, as in a run that goes on. After the last one a run has no step left to remove the former behind, and waits for that."""
    source = shapes.gpt2(bench.options, "fp32", {"micro_batch_size": 1, "global_batch_size": 2})
    source["model"] = source["model"] | {"seq_length": 64}
    saves = [f"train.steps={SAVES}", "checkpoint.interval=1", "checkpoint.keep=1", f"checkpoint.directory={folder}", "checkpoint.resume=none"]
    grid = [f"grid.dp={ranks}", f"sharding.zero_stage={1 if ranks > 1 else 0}"]
    record = bench.train(source, ranks, 2 // ranks, [*saves, *grid])
    file = folder / f"step-{SAVES:08}/checkpoint.h5"
    size = file.stat().st_size
    shutil.rmtree(file.parent)
    categories = [name.decode() for name in record["time/categories"]]
    return size, record["time/seconds"][-2, :, categories.index("checkpoint")].max()


def measure(bench):
    with tempfile.TemporaryDirectory(prefix="bench-", dir=bench.options.disk or bench.folder) as folder:
        for ranks in (1, 2):
            measure_in(bench, pathlib.Path(folder), ranks)


def measure_in(bench, folder, ranks):
    what = f"save of {shapes.name(bench.options)} by {ranks} {'ranks' if ranks > 1 else 'rank'}"
    rates, theirs, size = [], {way: [] for way in WAYS}, None

    def ours():
        nonlocal size
        size, seconds = our_seconds(bench, folder, ranks)
        rates.append(size / seconds * 1e-9)

    def fio():
        for way, options in WAYS.items():
            taken = fio_seconds(folder, size, options) if shutil.which("fio") else None
            if taken:
                theirs[way].append(size / taken * 1e-9)

    for number in bench.repetitions():
        for side in ((ours, fio) if number % 2 == 0 else (fio, ours)):
            side()
    bench.row(what, rates, "GB/s", note=f"{size / 1e9:.3g} GB, synced")
    measured = {way: values for way, values in theirs.items() if len(values) == len(rates)}
    if not measured:
        print(f"{what} / fio: skipped: no fio that can write here; on Debian: apt-get install fio")
        return
    for way, values in measured.items():
        bench.row(f"fio, 1 MiB blocks, {way}", values, "GB/s")
    bench.row(f"{what} / the better of fio's", [ours / max(fio) for ours, fio in zip(rates, zip(*measured.values()))], "", 0.70)

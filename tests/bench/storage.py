"""The nvme tier against fio, which only reads and writes: the same disk, block size, blocks in flight and file size, in turn."""
import json
import pathlib
import shutil
import subprocess
import tempfile

BLOCK_SIZE = 1 << 20
QUEUE_DEPTH = 32


def fio_rate(folder, direction, size):
    """Bytes per second of one pass over a file that is there, O_DIRECT through io_uring; none where fio cannot."""
    command = ["fio", "--name=tier", f"--filename={folder / 'fio-file'}", f"--rw={direction}", "--ioengine=io_uring", "--direct=1",
               f"--bs={BLOCK_SIZE}", f"--iodepth={QUEUE_DEPTH}", f"--size={size}", "--output-format=json"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        return None
    return json.loads(result.stdout[result.stdout.index("{"):])["jobs"][0][direction]["bw_bytes"]


def fio_problem(folder, size):
    """Why fio cannot be compared with, or nothing; leaves a file that has its blocks."""
    if shutil.which("fio") is None:
        return "skipped: no fio; on Debian: apt-get install fio"
    if fio_rate(folder, "write", size) is None:
        return "skipped: fio cannot use io_uring and O_DIRECT here"
    return ""


def our_rates(bench, folder, size):
    """{(name, algorithm): rate}, in GB/s."""
    path = bench.folder / "storage.json"
    result = bench.trainer.run(["bench", "storage", "--json", path, "--size", size, f"offload.nvme_path={folder}",
                                f"offload.block_size={BLOCK_SIZE}", f"offload.queue_depth={QUEUE_DEPTH}"], seconds=3600)
    if result.exit_code != 0:
        raise SystemExit(f"bench storage failed: {result.stderr}")
    return {(row["name"], row["algorithm"]): row["rate"] for row in json.loads(path.read_text())}


def measure(bench):
    with tempfile.TemporaryDirectory(prefix="bench-", dir=bench.options.disk or bench.folder) as folder:
        measure_in(bench, pathlib.Path(folder), (8 if bench.options.quick else 256) << 20)


def measure_in(bench, folder, size):
    problem = fio_problem(folder, size)
    ours, theirs = [], []
    for _ in bench.repetitions():
        ours.append(our_rates(bench, folder, size))
        if not problem:
            theirs.append({direction: fio_rate(folder, direction, size) * 1e-9 for direction in ("write", "read")})
    for name, algorithm in ours[0]:
        bench.row(f"{name}, {algorithm}, {QUEUE_DEPTH} blocks of {BLOCK_SIZE >> 20} MiB", [rates[name, algorithm] for rates in ours], "GB/s")
    for direction in ("write", "read"):
        key = (f"nvme_{direction}", "uring-direct")
        if problem or key not in ours[0]:
            print(f"nvme {direction}: ours / fio: {problem or 'skipped: this build or machine has no io_uring with O_DIRECT'}")
            continue
        bench.row(f"nvme {direction}: ours / fio", [our[key] / their[direction] for our, their in zip(ours, theirs)], "", 0.85,
                  note=f"fio {sorted(their[direction] for their in theirs)[len(theirs) // 2]:.3g} GB/s")

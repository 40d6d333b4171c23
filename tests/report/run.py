"""The reports of real runs, as a user gets them, in a browser: every figure is drawn and has its caption, the console is silent, and the network is
not asked for anything."""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, parse_arguments, report, show, write_counting_text  # noqa: E402

import browser  # noqa: E402
import hand_made  # noqa: E402

POSTPROC = hand_made.POSTPROC
SWEEP = POSTPROC.parent / "jobscripts/sweep.py"
MICRO = {"model": {"num_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 256, "seq_length": 32},
         "grid": {"tp": 2, "pp": 2}, "train": {"global_batch_size": 16, "micro_batch_size": 4, "steps": 6}, "device": {"threads": 1},
         "data": {"format": "text", "split": "90,10"}, "evaluation": {"interval": 3, "batches": 2}, "output": {"trace": True}}
STEPPED = {"summary", "loss", "gradients", "speed", "time_by_rank", "time_by_step", "queues", "memory_books", "memory_process", "memory_over_step",
           "environment"}
PIPELINED = STEPPED | {"bubble", "pipeline", "memory_by_rank", "moves"}


def script(name, *arguments):
    return subprocess.run([sys.executable, POSTPROC / name, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


def said(result):
    return [f"exit {result.returncode}: {result.stdout}{result.stderr}"]


def trained(trainer, overrides, ranks):
    """A run's folder; raises RuntimeError where it failed."""
    text = trainer.folder / "text"
    if not text.exists():
        write_counting_text(text)
    result = trainer.train(MICRO | {"data": MICRO["data"] | {"train": [str(text)]}}, ranks, overrides)
    if result.exit_code != 0:
        raise RuntimeError(show(result))
    return result.output


def ordinary(trainer):
    output = trained(trainer, ["output.overwrite=true"], 4)
    result = script("report.py", output)
    if result.returncode != 0 or result.stderr:
        return said(result), ""
    return browser.complaints_about(output / "report.html", PIPELINED)


def offloaded(trainer):
    """One rank whose optimizer lives on disk, without evaluation."""
    disk = trainer.folder / "disk"
    disk.mkdir(exist_ok=True)
    output = trained(trainer, ["grid.tp=1", "grid.pp=1", "offload.optimizer=nvme", f"offload.nvme_path={disk}", "evaluation.interval=0",
                               "output.overwrite=true"], 1)
    result = script("report.py", output)
    if result.returncode != 0 or result.stderr:
        return said(result), ""
    return browser.complaints_about(output / "report.html", STEPPED | {"copies"})


def compared(trainer):
    """A run beside its like on another grid: the same loss to rounding, which is told as what it is."""
    first = trained(trainer, ["output.overwrite=true"], 4)
    kept = first.rename(trainer.folder / "kept")
    second = trained(trainer, ["grid.tp=1"], 2)
    result = script("compare.py", kept, second, "--html", trainer.folder / "both.html")
    missing = [words for words in ("data: the same tokens in all common steps", "grid.tp", "losses: ") if words not in result.stdout]
    if result.returncode != 0 or result.stderr or missing:
        return said(result) + [f"not said: {words}" for words in missing], ""
    result = script("trace.py", kept)
    if result.returncode != 0 or not (kept / "trace.json").exists():
        return said(result), ""
    return browser.complaints_about(trainer.folder / "both.html", {"losses", "times_picture", "inputs", "memories", "movements"})


def refused_for_memory(trainer):
    """The input of a run that does not fit: the report plans it, shows the books at the peak, and what fits."""
    output = trained(trainer, ["output.overwrite=true"], 4)
    page, source = trainer.folder / "refused.html", trainer.folder / "run.yaml"
    refused = trainer.run(["train", source, f"output.directory={output}-small", "device.memory_limit=64KiB"], 4)
    asked = ["--ranks", 4, "--quadrille", trainer.binary, "--output", page]
    result = script("report.py", source, "device.memory_limit=64KiB", *asked)
    if refused.exit_code != 3 or result.returncode != 0 or result.stderr:
        return [f"train: exit {refused.exit_code}, 3 was due", *said(result)], ""
    again = script("report.py", output, "--fit", "64KiB", "--quadrille", trainer.binary)
    if again.returncode != 0 or "within 64KiB of device memory" not in (output / "report.html").read_text():
        return said(again), ""
    wrong = script("report.py", source, "grid.tp=3", *asked)
    if wrong.returncode != 2 or "grid" not in wrong.stderr:
        return said(wrong), ""
    text = page.read_text()
    wanted = {"plan_device", "plan_states"} | ({"alternatives_peak", "alternatives"} if "Nothing that was tried fits" not in text else set())
    return browser.complaints_about(page, wanted) if "It does not fit: it needs" in text else (["the page does not say that it does not fit"], "")


def swept(trainer):
    """A sweep over ranks and stages by sweep.py, one point of which plan refuses: its page, and the loss of each point whole in its table."""
    write_counting_text(trainer.folder / "text")
    base, place = trainer.folder / "base.yaml", trainer.folder / "sweep"
    base.write_text(json.dumps(MICRO | {"grid": {}, "data": MICRO["data"] | {"train": [str(trainer.folder / "text")]}}))
    (trainer.folder / "sweep.yaml").write_text(json.dumps({"base": str(base), "ranks": [1, 2, 3], "vary": {"sharding.zero_stage": [0, 1]}}))
    command = [sys.executable, SWEEP, trainer.folder / "sweep.yaml", "--directory", place, "--binary", trainer.binary]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=trainer.environment, timeout=240, stdin=subprocess.DEVNULL)
    result = script("report.py", place, "--csv", trainer.folder / "csv")
    if ran.returncode != 0 or result.returncode != 0 or result.stderr:
        return said(ran) + said(result), ""
    with (trainer.folder / "csv/eaten-1.csv").open() as file:
        rows = list(csv.DictReader(file))
    named = ("point", "ranks", "efficiency [%]", "loss [%]")
    wrong = [f"the loss is not the sum of its parts: {row}" for row in rows
             if abs(sum(float(value) for name, value in row.items() if name not in named) - float(row["loss [%]"])) > 1e-6]
    wanted = {"points", "dropped", "throughput", "efficiency", "eaten-1", "eaten-2", "rates", "by-sharding-zero_stage", "memory", "transfers"}
    complaints, remark = browser.complaints_about(place / "report.html", wanted)
    return wrong + complaints, remark


def main():
    arguments = parse_arguments(__doc__)
    checks = []
    for case in (ordinary, offloaded, compared, refused_for_memory, swept):
        def check(case=case):
            with tempfile.TemporaryDirectory(prefix="report-") as folder:
                return case(Trainer(arguments.binary, arguments.mpirun, folder))
        checks.append((case.__name__, check))
    return report(arguments, checks, "reports")


if __name__ == "__main__":
    sys.exit(main())

"""What `plan` prints, for people and as JSON, against the interface's keys, its own sums, and the record of a run of the same input."""
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, parse_arguments, read_record, report, show, write_counting_text  # noqa: E402

INPUT = {"model": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 256, "vocab_size": 256, "seq_length": 32},
         "train": {"global_batch_size": 8, "micro_batch_size": 2, "steps": 1}, "device": {"threads": 1},
         "data": {"format": "text", "train": ["counting.txt"]}}
# Table and positions, 4 blocks of two norms, attention and mlp with biases, the last norm; the head is the table.
PARAMETERS = (256 + 32) * 64 + 4 * (4 * 64 + 4 * (64 * 64 + 64) + 2 * 64 * 256 + 256 + 64) + 2 * 64
TIERS, BOOKS = ("device", "host", "nvme"), ("weights", "gradients", "optimizer", "activations", "buffers")
BYTES = dict.fromkeys(BOOKS, int)
SHAPE = {
    "parameters": int, "trained_parameters": int, "ranks": int,
    "programs": [{"coordinate": dict.fromkeys(("dp", "tp", "pp", "sp"), int), "count": int, "operations": int, "layers": int,
                  "peak_op": str, "peak_bytes": dict.fromkeys(TIERS, int), "books": dict.fromkeys(TIERS, BYTES), "packing": dict.fromkeys(TIERS, int),
                  "states": dict.fromkeys(("weights", "masters", "moments", "residuals", "gradients"), int),
                  "wire": {...: int}, "uncompressed": {...: int}, "copies": {...: int}}],
    "flops": {"model": (int, float), "hardware": (int, float)},
    "pipeline": {"schedule": str, "microbatches": int, "bubble_fraction": (int, float)},
    "fits": bool, "memory_limit": (int, type(None)), "host_memory_limit": (int, type(None)),
    "recompute": {"granularity": str, "bytes_saved": int, "flops_added": (int, float)},
    "suggestions": [{"change": str, "peak_bytes": int, "host_bytes": int, "nvme_bytes": int, "cost": (int, float)}],
}


def misfits(value, shape, path="plan"):
    """Where a JSON value differs from a shape: keys and types; `...` stands for keys that are not known in advance."""
    if isinstance(shape, list):
        return [c for i, v in enumerate(value) for c in misfits(v, shape[0], f"{path}[{i}]")] if isinstance(value, list) else [f"{path} is no list"]
    if not isinstance(shape, dict):
        whole = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        return [] if whole and (not isinstance(value, int) or value >= 0) else [f"{path} is {value!r}"]
    if not isinstance(value, dict):
        return [f"{path} is no object"]
    known = dict.fromkeys(value, shape[...]) if ... in shape else shape
    wrong = [f"{path} has the keys {sorted(value)}, due are {sorted(known)}"] if set(value) != set(known) else []
    return wrong + [c for key in set(value) & set(known) for c in misfits(value[key], known[key], f"{path}.{key}")]


def planned(lab, *arguments):
    """The plan as a dict and as text, and whether they end with the same exit code, the one that `fits` calls for."""
    as_json, as_text = (lab.run(["plan", "run.yaml", *arguments, *option]) for option in (["--json"], []))
    if as_json.exit_code not in (0, 3) or as_text.exit_code != as_json.exit_code:
        raise RuntimeError(show(as_json) + show(as_text))
    plan = json.loads(as_json.stdout)
    return plan, as_text.stdout, misfits(plan, SHAPE) + ([] if plan["fits"] == (as_json.exit_code == 0) else ["exit code and `fits` disagree"])


def sums(plan):
    """Complaints about what must add up in any plan."""
    complaints = []
    for p in plan["programs"]:
        for tier in TIERS:
            if p["peak_bytes"][tier] != sum(p["books"][tier].values()) + p["packing"][tier]:
                complaints.append(f"{tier} of {p['coordinate']}: {p['peak_bytes'][tier]} is not {p['books'][tier]} and {p['packing'][tier]}")
        home = max(TIERS, key=lambda tier: p["books"][tier]["optimizer"])
        if p["states"]["masters"] + p["states"]["moments"] != p["books"][home]["optimizer"]:
            complaints.append(f"{p['coordinate']}: {p['states']} and {home} {p['books'][home]}")
    if sum(p["count"] for p in plan["programs"]) != plan["ranks"]:
        complaints.append(f"the programs are those of {[p['count'] for p in plan['programs']]} of {plan['ranks']} ranks")
    return complaints


def in_short(text):
    """Complaints unless figures come first, and the input behind them in a few lines."""
    lines = text.splitlines()
    head = "input as resolved (--resolved prints all of it)"
    if not text.startswith("parameters  ") or head not in lines:
        return [f"figures, then the input, were due:\n{text}"]
    short = lines[lines.index(head) + 1:]
    due = ("num_layers: 4", "zero_stage: 0", "counting.txt")
    return [] if len(short) < 40 and all(any(word in line for line in short) for word in due) else [f"few lines with {due} were due:\n{text}"]


def many_files(lab):
    """Files of data are counted in the plan's text and listed by --resolved alone; the options that print something else exclude each other."""
    for number in range(30):
        (lab.folder / f"part{number:02}.txt").write_text("x" * 1024)
    (lab.folder / "run.yaml").write_text(json.dumps(INPUT))
    plan = ["plan", "run.yaml", "data.train=part*.txt"]
    text, whole = lab.run(plan).stdout, lab.run([*plan, "--resolved"]).stdout
    complaints = [] if "train: 30 files of 30.0 KiB," in text and "part07.txt" not in text else [f"30 files were to be counted:\n{text}"]
    complaints += [] if whole.count("part") == 30 else [f"30 files were to be listed:\n{whole}"]
    for pair in (["--program", "--json"], ["--json", "--resolved"], ["--resolved", "--program"]):
        result = lab.run([*plan, *pair])
        if result.exit_code != 2 or "one of them" not in result.stderr or result.stdout:
            complaints.append(f"{pair}: a refusal was due\n{show(result)}")
    return complaints


def figures_before_advice(lab):
    """The figures are there while the advice is still being looked for: who ends the plan at its first line misses the advice alone."""
    (lab.folder / "run.yaml").write_text(json.dumps(INPUT))
    process = lab.start(["plan", "run.yaml", "model.num_layers=96", "device.memory_limit=1MiB"], 1)
    first = process.stdout.readline()
    process.kill()
    text, errors = first + process.stdout.read(), process.stderr.read()
    process.wait()
    good = text.startswith("parameters") and "does not fit in 1.00 MiB" in text and not errors
    return [] if good and "change" not in text and "input as resolved" not in text else [f"the figures alone were due:\n{text}{errors}"]


def against_the_record(lab, ranks, *grid):
    """The plan's bytes, axes and FLOPs are the record's, and it says the same in words."""
    result = lab.train(INPUT, ranks, [*grid, "output.overwrite=true"])
    if result.exit_code != 0:
        raise RuntimeError(show(result))
    record = read_record(result.output)
    plan, text, complaints = planned(lab, *grid, "--ranks", ranks)
    complaints += sums(plan) + in_short(text)
    if plan["memory_limit"] is not None or sum(p["layers"] for p in plan["programs"]) != INPUT["model"]["num_layers"]:
        complaints.append(f"without a limit there is none in the plan, and its layers are the model's: {plan}")
    lines = lab.run(["plan", "run.yaml", *grid, "--ranks", ranks, "--program"]).stdout.splitlines()
    complaints += [f"no op is '{p['peak_op']}'" for p in plan["programs"] if f"line{p['peak_op']}" not in lines and p["peak_op"] not in lines]
    axes = [name.decode() for name in record["wire/axes"]]
    coordinates = record["grid/coordinates"].tolist()
    if f"with scratch for device.threads {record['environment']['threads']}\n" not in text:
        complaints.append("the plan does not say for how many threads it is, or not for the run's")
    if plan["parameters"] != PARAMETERS or f"parameters  {PARAMETERS}\n" not in text:
        complaints.append(f"{plan['parameters']} parameters, {PARAMETERS} by hand")
    if sorted({axis for p in plan["programs"] for axis in p["wire"]}) != axes:
        complaints.append(f"axes {[p['wire'] for p in plan['programs']]}, the record has {axes}")
    for p in plan["programs"]:
        rank = coordinates.index([p["coordinate"][axis] for axis in ("dp", "tp", "pp", "sp")])
        predicted = record["memory/predicted_peak"][rank]
        if [[p["books"][tier][book] for book in BOOKS] for tier in TIERS] != predicted.tolist():
            complaints.append(f"books {p['books']}, the record has {predicted.tolist()}")
        if [p["wire"].get(axis, 0) for axis in axes] != record["wire/predicted"][rank].tolist():
            complaints.append(f"wire {p['wire']}, the record has {record['wire/predicted'][rank]} over {axes}")
        queues = [name.decode() for name in record["copies/queues"]]
        if [p["copies"].get(queue, 0) for queue in queues] != record["copies/predicted"][rank].tolist():
            complaints.append(f"copies {p['copies']}, the record has {record['copies/predicted'][rank]} over {queues}")
        if not re.search(rf"^ +{p['coordinate']['pp']} +{p['count']} +{p['operations']} ", text, re.MULTILINE):
            complaints.append(f"no line of the text has pp, ranks and ops of {p}")
    for name in ("model", "hardware"):
        if plan["flops"][name] != record[f"flops/{name}"]:
            complaints.append(f"{plan['flops']}, the record has {record[f'flops/{name}']} {name}")
    schedule = f"{plan['pipeline']['schedule']}, {plan['pipeline']['microbatches']} microbatches"
    return complaints + [f"the text lacks '{words}'" for words in (f"ranks       {ranks}\n", schedule, "no memory limit") if words not in text]


def suggestions_hold(lab):
    """Over budget: every change, pasted behind the same input, is accepted, fits, and needs what was promised; the text has the same lines."""
    (lab.folder / "run.yaml").write_text(json.dumps(INPUT | {"model": INPUT["model"] | {"vocab_size": 4096}}))
    free, _, complaints = planned(lab, "--ranks", 4)
    limit = max(p["peak_bytes"]["device"] for p in free["programs"]) - (1 << 19)
    budget = [f"device.memory_limit={limit}", "--ranks", 4]
    plan, text, wrong = planned(lab, *budget)
    complaints += wrong
    if plan["memory_limit"] != limit or not free["fits"] or plan["fits"] or not plan["suggestions"] or "does not fit in" not in text:
        return [*complaints, f"fits {plan['fits']}, suggestions {plan['suggestions']}\n{text}"]
    if text.index("# device peak") > text.index("input as resolved"):
        complaints.append(f"the advice stands behind the input:\n{text}")
    if re.findall(r"^(\S+=.*)  # device peak", text, re.MULTILINE) != [s["change"] for s in plan["suggestions"]]:
        complaints.append(f"the text's lines are not {plan['suggestions']}\n{text}")
    for suggestion in plan["suggestions"]:
        changed, _, wrong = planned(lab, *budget, *suggestion["change"].split())
        peak = max(p["peak_bytes"]["device"] for p in changed["programs"])
        complaints += wrong + sums(changed)
        if not changed["fits"] or peak != suggestion["peak_bytes"] or peak > limit:
            complaints.append(f"{suggestion}: with it, fits is {changed['fits']} and the peak {peak}")
    return complaints


def main():
    arguments = parse_arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        write_counting_text(pathlib.Path(folder) / "counting.txt")
        lab = Trainer(arguments.binary, arguments.mpirun, folder)
        grids = [(1,), (4, "grid.dp=2", "grid.sp=2"), (4, "grid.tp=2", "grid.pp=2"), (4, "grid.pp=2", "grid.sp=2", "pipeline.schedule=gpipe"),
                 (2, "grid.dp=2", "offload.optimizer=nvme", "offload.nvme_path=.", "offload.activations=cpu")]
        checks = [("plan and record on " + " ".join(map(str, grid)), lambda grid=grid: (against_the_record(lab, *grid), "")) for grid in grids]
        return report(arguments, [*checks, ("suggestions", lambda: (suggestions_hold(lab), "")), ("many files", lambda: (many_files(lab), "")),
                                  ("figures before advice", lambda: (figures_before_advice(lab), ""))])


if __name__ == "__main__":
    sys.exit(main())

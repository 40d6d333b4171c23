"""import and export against the reference library's own files (hugging_face/, made by make_hugging_face.py), and against each other.

Each stored model is imported; the loss of its first step is the stored one; its export has the reference library's names, shapes and bits, and imports
again to the same bits. A model that was trained on, exported in shards and imported, has the loss that the run itself had next.
"""
import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy

STORED = pathlib.Path(__file__).parent / "hugging_face"
MODELS = ("gpt2", "gpt2_untied", "llama", "llama_biased_tied")
TOLERANCE = 1e-5
RUN = """
train: {{global_batch_size: 4, micro_batch_size: 4, steps: {steps}}}
optimizer: {{lr: 1e-2, warmup_steps: 0, lr_schedule: constant}}
data: {{format: tokens, train: [{tokens}], dtype: uint16, shuffle: false}}
checkpoint: {{resume: "{resume}", interval: {interval}, keep: 0}}
output: {{directory: {output}}}
device: {{threads: 1}}
"""


def read_tensors(folder):
    """All tensors of a folder, by name: shape and bytes."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                assert name not in found, name
                found[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return found


def read_parameters(step):
    with h5py.File(step / "checkpoint.h5") as file:
        return {name: dataset[()].tobytes() for name, dataset in file["parameters"].items()}


class Job:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def run(self, *words, code=0):
        done = subprocess.run([self.binary, *map(str, words)], capture_output=True, text=True, cwd=self.folder, stdin=subprocess.DEVNULL)
        assert done.returncode == code, f"{words}: exit {done.returncode}, due {code}\n{done.stdout}{done.stderr}"
        return done.stderr if code else done.stdout

    def losses(self, name, section, tokens, resume, steps, interval=0):
        output = self.folder / name
        text = section + RUN.format(steps=steps, tokens=tokens, resume=resume, interval=interval, output=output)
        (self.folder / f"{name}.yaml").write_text(text)
        self.run("train", f"{name}.yaml")
        with h5py.File(output / "run.h5") as record:
            return record["steps/loss"][()]


def near(what, found, due):
    assert abs(found / due - 1) < TOLERANCE, f"{what}: loss {found}, due {due}"
    print(f"{what}: loss {found:.7f}, {abs(found / due - 1):.1e} off")


def check_model(job, name):
    stored = STORED / name
    step = job.folder / f"{name}-steps" / "step-00000000"
    section = job.run("import", stored, step.parent)
    losses = job.losses(f"{name}-run", section, stored / "tokens.u16", step, 4, interval=2)
    near(name, losses[0], float((stored / "loss").read_text()))
    job.run("export", step, job.folder / f"{name}-out")
    assert read_tensors(job.folder / f"{name}-out") == read_tensors(stored), f"{name}: the export is not what was imported"
    again = job.folder / f"{name}-again" / "step-00000000"
    job.run("import", job.folder / f"{name}-out", again.parent)
    assert read_parameters(again) == read_parameters(step), f"{name}: imported again it is something else"
    # After two steps, in shards: the run's third step has the loss that the imported model begins with, for every batch is all of the data.
    job.run("export", job.folder / f"{name}-run" / "checkpoints" / "step-00000002", job.folder / f"{name}-shards", "--shard", "4KiB")
    assert (job.folder / f"{name}-shards" / "model.safetensors.index.json").exists(), f"{name}: no index"
    section = job.run("import", job.folder / f"{name}-shards", job.folder / f"{name}-trained")
    reloaded = job.losses(f"{name}-reloaded", section, stored / "tokens.u16", job.folder / f"{name}-trained" / "step-00000000", 1)
    near(f"{name} after two steps", reloaded[0], losses[2])
    for dtype in ("bf16", "fp16"):
        job.run("export", step, job.folder / f"{name}-{dtype}", "--dtype", dtype)
        job.run("import", job.folder / f"{name}-{dtype}", job.folder / f"{name}-{dtype}-steps")


def check_refusals(job):
    """Usage and damage: an exit code and a sentence, and nothing left behind."""
    step = job.folder / "gpt2-steps" / "step-00000000"
    assert "is not empty" in job.run("export", step, job.folder / "gpt2-out", code=2)
    assert "does not exist" in job.run("export", job.folder / "nowhere", job.folder / "new", code=2)
    assert "holds a checkpoint" in job.run("import", STORED / "gpt2", step.parent, code=2)
    assert "holds no config.json" in job.run("import", job.folder, job.folder / "new", code=2)
    assert "usage: quadrille import" in job.run("import", STORED / "gpt2", code=2)
    assert "transformer.wpe.weight is [11, 15], and" in job.run("import", STORED / "gpt2", job.folder / "new", "model.seq_length=8", code=2)
    broken = job.folder / "broken"
    shutil.copytree(STORED / "gpt2", broken)
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:-1])
    assert "truncated" in job.run("import", broken, job.folder / "new", code=5)
    (broken / "model.safetensors").write_bytes(whole.replace(b"wpe.weight", b"wpe.weighs"))
    said = job.run("import", broken, job.folder / "new", code=2)
    assert "has no tensor transformer.wpe.weight" in said and "has a tensor transformer.wpe.weighs" in said, said
    assert not (job.folder / "new").exists() or not any((job.folder / "new").iterdir()), "something was left behind"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    with tempfile.TemporaryDirectory(prefix="quadrille-exchange-") as folder:
        job = Job(parser.parse_args().binary, pathlib.Path(folder))
        for name in MODELS:
            check_model(job, name)
        check_refusals(job)


if __name__ == "__main__":
    sys.exit(main())

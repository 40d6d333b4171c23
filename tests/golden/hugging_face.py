"""import and export against the reference library's own files (hugging_face/, made by make_hugging_face.py), and against each other.

Each stored model is imported; the loss of its first step is the stored one; its export has the reference library's names, shapes and bits, and
imports again to the same bits. A model that was trained on, exported in shards and imported, has the loss that the run itself had next.
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


def write_tensors(file, tensors):
    """A safetensors file of {name: (dtype, shape, bytes)}."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    write_parts(file, header, b"".join(data for _, _, data in tensors.values()))


def write_parts(file, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def read_parts(file):
    data = file.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:end]), data[end:]


def to_bf16(values):
    """Rounded to the nearest, to the even one of two."""
    bits = values.view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype("<u4")


def to_fp16(values):
    return values.astype("<f2").astype("<f4")


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
    exact = read_parameters(step)
    for dtype, rounded in (("bf16", to_bf16), ("fp16", to_fp16)):
        job.run("export", step, job.folder / f"{name}-{dtype}", "--dtype", dtype)
        job.run("import", job.folder / f"{name}-{dtype}", job.folder / f"{name}-{dtype}-steps")
        found = read_parameters(job.folder / f"{name}-{dtype}-steps" / "step-00000000")
        wrong = [parameter for parameter in exact if found[parameter] != rounded(numpy.frombuffer(exact[parameter], "<f4")).tobytes()]
        assert not wrong and found.keys() == exact.keys(), f"{name}: {wrong} are not what was exported, rounded to {dtype}"


def check_refusals(job):
    """Usage and damage: an exit code and a sentence, and nothing left behind."""
    step = job.folder / "gpt2-steps" / "step-00000000"
    assert "is not empty" in job.run("export", step, job.folder / "gpt2-out", code=2)
    run = job.folder / "gpt2-run"  # not its checkpoints
    assert f"folder step-*; {run / 'checkpoints'} holds some" in job.run("export", run, job.folder / "new", code=2)
    assert f"folder step-*; {run / 'checkpoints'} holds some" in job.run("train", "gpt2-run.yaml", f"checkpoint.resume={run}", code=2)
    assert "does not exist" in job.run("export", job.folder / "nowhere", job.folder / "new", code=2)
    assert "holds a checkpoint" in job.run("import", STORED / "gpt2", step.parent, code=2)
    assert "holds no config.json" in job.run("import", job.folder, job.folder / "new", code=2)
    assert "usage: quadrille import" in job.run("import", STORED / "gpt2", code=2)
    assert "transformer.wpe.weight is [11, 15], and" in job.run("import", STORED / "gpt2", job.folder / "new", "model.seq_length=8", code=2)
    assert "num_layers" in job.run("import", STORED / "gpt2", job.folder / "new", "model.num_layers=0", code=2)
    assert "says nothing of the model" in job.run("import", STORED / "gpt2", job.folder / "new", "train.precision=fp16", code=2)
    learned = "model.position_embedding=learned"
    assert "llama wants position_embedding rope" in job.run("import", STORED / "llama", job.folder / "new", learned, code=2)
    assert "has no adapters for --merge-lora" in job.run("export", step, job.folder / "new", "--merge-lora", code=2)
    assert "unknown option --dtpye" in job.run("export", step, job.folder / "new", "--dtpye", "bf16", code=2)
    assert "--dtype takes fp32" in job.run("export", step, job.folder / "new", "--dtype", "int8", code=2)
    assert not (job.folder / "new").exists(), "something was left behind"


def check_replaced(job):
    """A former export or import goes where --replace says so; what came of it is the new one."""
    step, out = job.folder / "llama-steps" / "step-00000000", job.folder / "gpt2-out"
    job.run("export", step, out, "--shard", "4KiB", "--replace")
    assert read_tensors(out) == read_tensors(STORED / "llama"), "the folder holds something else than the new export"
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"
    (out / "tokenizer.json").write_text("{}")
    assert "tokenizer.json" in job.run("export", step, out, "--replace", code=2)
    directory = job.folder / "gpt2-again"
    job.run("import", STORED / "llama", directory, "--replace")
    assert read_parameters(directory / "step-00000000") == read_parameters(step), "the directory holds something else than the new import"
    assert [path.name for path in directory.iterdir()] == ["step-00000000"], list(directory.iterdir())
    assert "of a run" in job.run("import", STORED / "llama", job.folder / "llama-run" / "checkpoints", "--replace", code=2)


def check_begun(job):
    """A run that begins with an import compares the model alone, for no run has saved it."""
    section = job.run("import", STORED / "llama", job.folder / "begun-steps")
    begins = RUN.format(steps=1, tokens=STORED / "llama" / "tokens.u16", resume=job.folder / "begun-steps", interval=0, output=job.folder / "begun")
    (job.folder / "begun.yaml").write_text(section + begins)
    said = job.run("train", "begun.yaml", "model.init_std=0.5")
    assert "resume: begins with the weights of" in said and "imported by quadrille" in said, said
    assert "resume: model.init_std is 0.5; the import says 0.02" in said and "the checkpoint's run" not in said, said
    assert sum(" is " in line for line in said.splitlines() if line.startswith("resume: ")) == 1, said


def check_inspected(job):
    said = job.run("inspect", job.folder / "llama-steps")
    assert "sequence 13\n" in said, f"what the import does not say is told:\n{said}"
    for words in ("step       0, 0 updates", "verified", "/parameters/layers.1.attention.k.weight", "[2, 6, 20]"):
        assert words in said, f"inspect does not say '{words}':\n{said}"


def check_damaged(job):
    """Files that are damaged, foreign, or not those of their config.json: 5 and 2, a sentence with the name, and nothing left behind."""
    stored = STORED / "llama"
    header, data = read_parts(stored / "model.safetensors")
    tensors, config = read_tensors(stored), json.loads((stored / "config.json").read_text())
    names = sorted((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    first, last = names[0], names[-1]
    shifted = header | {last: header[last] | {"data_offsets": [offset - 4 for offset in header[last]["data_offsets"]]}}
    bare = {name: tensor for name, tensor in tensors.items() if name != last}
    double = tensors | {last: ("F64", tensors[last][1], numpy.frombuffer(tensors[last][2], "<f4").astype("<f8").tobytes())}
    model, index = "model.safetensors", "model.safetensors.index.json"

    def parts(header, data, length=None):
        return lambda folder: write_parts(folder / model, header, data, length)

    def configured(**changes):
        return lambda folder: (folder / "config.json").write_text(json.dumps(config | changes))

    def sharded(weight_map):
        def change(folder):
            (folder / model).rename(folder / "model-00001-of-00002.safetensors")
            (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        return change

    one = {name: "model-00001-of-00002.safetensors" for name in names}
    for change, code, words in (
            (parts(header, data[:-1]), 5, "truncated"),
            (parts(header, data, 2**63), 5, f"says its header has {2**63} bytes"),
            (parts(header, b"", 90_000_000), 5, "says its header ends at byte 90000008"),
            (parts(b"{" + b"[" * 100_000, data), 5, "model.safetensors: "),
            (parts(shifted, data), 5, f"'{last}' begins at byte"),
            (parts(header | {last: header[last] | {"dtype": "F64"}}, data), 5, "of F64 takes"),
            (parts(header | {last: header[last] | {"dtype": "F32X"}}, data), 5, "dtype F32X"),
            (lambda folder: write_tensors(folder / model, double), 2, f"'{last}' is F64, allowed: F32, F16 and BF16"),
            (lambda folder: write_tensors(folder / model, bare), 2, f"has no tensor {last}"),
            (lambda folder: write_tensors(folder / model, tensors | {"extra.weight": tensors[last]}), 2, "has a tensor extra.weight"),
            (lambda folder: (folder / model).write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), 5, "says its header has"),
            (lambda folder: (folder / model).unlink(), 2, "holds neither"),
            (sharded(one | {first: "model-00002-of-00002.safetensors"}), 5, "model-00002-of-00002.safetensors: is missing"),
            (sharded({name: file for name, file in one.items() if name != first}), 5, f"does not name tensor '{first}'"),
            (lambda folder: (folder / "config.json").write_text("{"), 5, "config.json: is no JSON"),
            (configured(vocab_size=43), 2, "is [41, 20], and by config.json"),
            (configured(num_hidden_layers=3), 2, "has no tensor model.layers.2."),
            (configured(num_hidden_layers=50000), 2, "by its config.json 50000 layers"),
            (configured(hidden_act="gelu"), 2, 'hidden_act is "gelu", allowed: silu'),
            (configured(sliding_window=64), 2, "a window of attention is not in this program's models"),
            (configured(rope_parameters={"rope_type": "yarn", "factor": 4.0}), 2, 'rope_type "yarn", allowed: default'),
            (configured(model_type="mistral"), 2, 'model_type is "mistral", allowed: gpt2 and llama')):
        broken = job.folder / "broken"
        shutil.copytree(stored, broken)
        change(broken)
        said = job.run("import", broken, job.folder / "new", code=code)
        assert words in said and "broken" in said, f"'{words}' was due:\n{said}"
        assert not (job.folder / "new").exists(), f"{words}: something was left behind"
        shutil.rmtree(broken)
    # What is of another library's making but whole: without the prefix, in several types, with a buffer.
    bare = {name.removeprefix("transformer."): tensor for name, tensor in read_tensors(STORED / "gpt2").items()}
    bare["h.0.attn.bias"] = ("U8", [1, 1, 1, 2], b"\0\1")
    name = "wte.weight"
    bare[name] = ("F16", bare[name][1], numpy.frombuffer(bare[name][2], "<f4").astype("<f2").tobytes())
    shutil.copytree(STORED / "gpt2", broken)
    write_tensors(broken / model, bare)
    assert "h.0.attn.bias" in job.run("import", broken, job.folder / "bare"), "the buffer is not told of"
    found, due = (read_parameters(job.folder / steps / "step-00000000") for steps in ("bare", "gpt2-steps"))
    due["embedding.weight"] = to_fp16(numpy.frombuffer(due["embedding.weight"], "<f4")).tobytes()
    assert found == due, "without the prefix it is something else"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    with tempfile.TemporaryDirectory(prefix="quadrille-exchange-") as folder:
        job = Job(parser.parse_args().binary, pathlib.Path(folder))
        for name in MODELS:
            check_model(job, name)
        check_refusals(job)
        check_begun(job)
        check_inspected(job)
        check_damaged(job)
        check_replaced(job)


if __name__ == "__main__":
    sys.exit(main())

"""Exports and imports that are killed, or find no room: nothing half made has the final name, and the next try succeeds."""
import functools
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import time

from trainer import numpy, show

from cases import DONE, IO_FAILED
from midrun import ours

KILLS = 6
LAYERS, HIDDEN, VOCABULARY = 24, 256, 512  # some 75 MB: long enough to be killed in
MEGABYTE = 1000000


def write_model(folder, layers=LAYERS):
    """A Llama model of pseudo-random weights, and returns its tensors' bytes."""
    shapes = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN], "lm_head.weight": [VOCABULARY, HIDDEN]}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        shapes |= {at + f"self_attn.{part}_proj.weight": [HIDDEN, HIDDEN] for part in "qkvo"}
        shapes |= {at + f"mlp.{part}_proj.weight": [2 * HIDDEN, HIDDEN] for part in ("gate", "up")}
        shapes |= {at + "mlp.down_proj.weight": [HIDDEN, 2 * HIDDEN]}
        shapes |= {at + f"{part}_layernorm.weight": [HIDDEN] for part in ("input", "post_attention")}
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    values = numpy.random.default_rng(layers).standard_normal(end // 4, dtype="f4")
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + values.tobytes())
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_hidden_layers": layers,
        "num_attention_heads": 4, "max_position_embeddings": 64}))
    return end


def words_of(trainer, command):
    """The command's words, and the folder that it makes."""
    if command == "import":
        return ["import", trainer.folder / "model", trainer.folder / "made"], trainer.folder / "made" / "step-00000000"
    return ["export", trainer.folder / "source", trainer.folder / "made"], trainer.folder / "made"


def prepare(trainer, command):
    write_model(trainer.folder / "model")
    if command == "export":
        made = trainer.run(["import", trainer.folder / "model", trainer.folder / "source"])
        if made.exit_code != DONE:
            raise RuntimeError(show(made))
    return words_of(trainer, command)


def beside(made):
    """What else than the folder itself there is of its name."""
    return sorted(path for path in made.parent.glob(made.name + ".*")) if made.parent.exists() else []


def is_whole(trainer, made):
    """Complaints unless what was made is the model, which `inspect` or another import says."""
    if made.name.startswith("step-"):
        result = trainer.run(["inspect", made])
    else:
        shutil.rmtree(trainer.folder / "back", ignore_errors=True)
        result = trainer.run(["import", made, trainer.folder / "back"])
    return [] if result.exit_code == DONE else [f"what was made is not whole\n{show(result)}"]


def killed(command, trainer):
    """kill -9 at several moments in between: the final name is never there half made, and the next try succeeds and clears up."""
    words, made = prepare(trainer, command)
    begin = time.monotonic()
    first = trainer.run(words)
    seconds = time.monotonic() - begin
    if first.exit_code != DONE:
        return [show(first)]
    shutil.rmtree(made)
    complaints, in_between = [], 0
    for number in range(KILLS):
        former = beside(made)
        process = trainer.start(words, 1)
        while process.poll() is None and not set(beside(made)) - set(former):
            time.sleep(0.001)
        time.sleep(number / KILLS * seconds)  # the moment is what is tested
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL and not made.exists():
            in_between += 1
            if len(beside(made)) != 1:
                complaints.append(f"after kill {number} there are {beside(made)}: those of the former try were to be removed")
        if made.exists():
            complaints += is_whole(trainer, made)
            shutil.rmtree(made)
    if in_between == 0:
        complaints.append(f"not one of {KILLS} kills met it at work")
    left, last = beside(made), trainer.run(words)
    if last.exit_code != DONE or beside(made) or ("dead save has left is removed" in last.stderr) != bool(left):
        complaints.append(f"the next try was to succeed and to clear up: {beside(made)}\n{show(last)}")
    return complaints + is_whole(trainer, made)


def killed_over_a_former_one(command, trainer):
    """With --replace, killed: the former one is there whole."""
    words, made = prepare(trainer, command)
    if trainer.run(words).exit_code != DONE:
        return ["nothing was made"]
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    process = trainer.start([*words, "--replace"], 1)
    while process.poll() is None and not beside(made):
        time.sleep(0.001)
    process.kill()
    process.communicate()
    complaints = []
    if process.returncode == -signal.SIGKILL and {path.name: path.read_bytes() for path in made.iterdir()} != before:
        complaints.append("the former one has changed")
    again = trainer.run([*words, "--replace"])
    if again.exit_code != DONE or beside(made):
        complaints.append(f"the next try was to succeed: {beside(made)}\n{show(again)}")
    return complaints + is_whole(trainer, made)


def says_io_failed(result, made, *words):
    """Complaints unless it ended with exit 5 and one line of these words, and left nothing of the name."""
    said = ours(result.stderr)
    complaints = []
    if result.exit_code != IO_FAILED or len(said) != 1 or any(word not in said[0] for word in words):
        complaints.append(f"exit {IO_FAILED} and one line that says {words} were due\n{show(result)}")
    if made.exists() or beside(made):
        complaints.append(f"left behind: {made.exists()}, {beside(made)}")
    return complaints


def file_too_large(command, trainer):
    """A limit on a file's size (ulimit -f) ends it like a full disk; without the limit it succeeds."""
    words, made = prepare(trainer, command)
    complaints = []
    for limit in (1000, 20 * MEGABYTE):  # even config.json may be too much
        process = subprocess.Popen([str(word) for word in [trainer.binary, *words]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=trainer.environment, cwd=trainer.folder,
                                   preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit)))
        out, err = process.communicate(timeout=60)
        complaints += says_io_failed(Finished(process.returncode, out, err), made, "File too large")
        if (trainer.folder / "made").exists():
            complaints.append("the folder that it has made itself is left behind, empty")
    again = trainer.run(words)
    return complaints + ([show(again)] if again.exit_code != DONE else is_whole(trainer, made))


class Finished:
    """What `show` prints of a process."""

    def __init__(self, exit_code, stdout, stderr):
        self.exit_code, self.stdout, self.stderr, self.seconds = exit_code, stdout, stderr, 0


def full_disk(command, trainer):
    """A file system that is too small: exit 5, nothing of the name; with room it succeeds."""
    words, made = prepare(trainer, command)
    small = trainer.folder / "made" if command == "import" else trainer.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", small], capture_output=True, check=False).returncode:
        return "skipped: no file system may be mounted here"
    if command == "export":
        words[2], made = small / "out", small / "out"
    try:
        complaints = says_io_failed(trainer.run(words), made, str(small), "No space left on device")
        subprocess.run(["mount", "-o", "remount,size=300m", small], check=True)
        again = trainer.run(words)
        return complaints + ([show(again)] if again.exit_code != DONE else is_whole(trainer, made))
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def read_only(command, trainer):
    """A directory that may not be written to: for an ordinary user by its mode, for root by a mount."""
    words, made = prepare(trainer, command)
    place = trainer.folder / "place"
    place.mkdir()
    words[2], made = place / "made", place / "made"
    if os.geteuid() != 0:
        place.chmod(0o555)
        complaints = says_io_failed(trainer.run(words), made, str(place), "Permission denied")
        place.chmod(0o755)
        return complaints
    try:
        subprocess.run(["mount", "--bind", place, place], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        return "skipped: nothing may be mounted here"
    try:
        return says_io_failed(trainer.run(words), made, str(place), "Read-only file system")
    finally:
        subprocess.run(["umount", "-l", place], check=True)


CHECKS = [(f"{command}: {what}", functools.partial(check, command)) for command in ("export", "import") for what, check in (
    ("kill -9", killed), ("kill -9 over a former one", killed_over_a_former_one), ("a limit on files", file_too_large), ("full disk", full_disk),
    ("read-only directory", read_only))]

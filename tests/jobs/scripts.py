"""The job scripts, started as a user would, and what they leave. A small input for them."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

JOBSCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "jobscripts"
INPUT = {
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 256, "seq_length": 32},
    "train": {"global_batch_size": 8, "micro_batch_size": 2, "steps": 4},
    "optimizer": {"lr": 1e-3, "min_lr": 0, "lr_schedule": "constant", "warmup_steps": 0},
    "device": {"threads": 1},
    "data": {"format": "text", "train": ["counting.txt"]},
}
# Steps long enough that a run can be stopped amid them: a second where nothing else runs.
STEPS = 80
LONG = {"train.steps": STEPS, "output.log_interval": 2, "model.hidden_size": 64, "model.seq_length": 64, "train.global_batch_size": 16}


def write(path, value):
    """A YAML file; JSON is YAML."""
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
    return path


def checkout(trainer, folder):
    """A folder that looks as the project's own does to job scripts: jobscripts/ and build/quadrille."""
    (folder / "build").mkdir(parents=True)
    (folder / "jobscripts").symlink_to(JOBSCRIPTS)
    (folder / "build/quadrille").symlink_to(trainer.binary)
    return folder


def start(trainer, script, *words, environment=()):
    """A script, in a process of its own."""
    return subprocess.Popen([sys.executable, JOBSCRIPTS / script, *map(str, words)], cwd=trainer.folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=trainer.environment | dict(environment),
                            start_new_session=True)


def end(process, seconds=400):
    """(exit code, stdout, stderr); the code is None where its time was over."""
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        return None, out, err


def call(trainer, script, *words, seconds=400, environment=()):
    return end(start(trainer, script, *words, environment=environment), seconds)


def submit(trainer, *words, **options):
    return call(trainer, "submit.py", *binary_of(trainer, words), *words, **options)


def sweep(trainer, *words, **options):
    return call(trainer, "sweep.py", *binary_of(trainer, words), *words, **options)


def binary_of(trainer, words):
    """The option that names the trainer; a directory of what was begun has its own."""
    return [] if words and (trainer.folder / words[0]).is_dir() else ["--binary", trainer.binary]


def expect(what, ended, code, *words):
    """Complaints unless a script ended with that code and said those words, on either stream."""
    said = ended[1] + ended[2]
    missing = [word for word in words if word not in said]
    if ended[0] == code and not missing:
        return []
    return [f"{what}: exit {ended[0]}, due {code}; not said: {missing}\n{said[-3000:]}"]


def state(directory):
    """state.json; None where there is none."""
    try:
        return json.loads((directory / "state.json").read_text())
    except FileNotFoundError:
        return None


def processes_of(words):
    """The ids of processes that have all of these among the words of their command lines, whole or in part."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdecimal() else ""
        except OSError:
            continue
        if line and all(str(word) in line for word in words):
            found.append(int(entry.name))
    return [number for number in found if number != os.getpid()]


def ranks_of(directory):
    """The processes of a run's ranks: the trainer itself, not its launcher."""
    binary = str(directory / "bin/quadrille")
    if not (directory / "bin").exists():
        binary = str(directory.parents[1] / "bin/quadrille")
    return [number for number in processes_of([binary, directory / "input.yaml"])
            if pathlib.Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[0].decode() == binary]


def is_training(directory, after=""):
    """Whether a run's ranks are there, and its log tells of a step, behind the last place that tells of `after`."""
    log = directory / "log.txt"
    return bool(log.exists() and re.search(r"\nstep ", log.read_text().rpartition(after)[2] if after else log.read_text()) and ranks_of(directory)
                and (not after or after in log.read_text()))

"""Runs of the trainer as directories that can be queued, started here and gone on with. What submit.py and sweep.py share.

Owns the layout of a run's directory (jobscripts/README.md), its script, and the questions to `quadrille plan`. What happens while a run runs is
attempt.sh's, where it stands is read by standing.py; how many runs there are, and of what, is sweep.py's.
"""
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile

import document
import keeping
import slurm
import standing
from document import Refused

HERE = pathlib.Path(__file__).resolve().parent
# What write_tools and write_run have written before job.sh: a directory that holds nothing else is of no run yet.
BEFORE_SCRIPT = ("bin", "machine.yaml", "source.yaml", "input.yaml", "plan.json", "job.json", "job.sh")
BINARY = "build/quadrille"  # the trainer where no other is named
NO_MEMORY = 3  # exit code


@dataclasses.dataclass(frozen=True)
class Trainer:
    """The binary, what it says of itself, and what it says of inputs."""

    binary: pathlib.Path
    version: str
    commit: str

    def plan(self, source, overrides, ranks, *options):
        return subprocess.run([self.binary, "plan", source, *overrides, "--ranks", str(ranks), *options], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", check=False)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run that `plan` has not refused."""

    source: pathlib.Path
    overrides: list
    layout: object  # machine.Layout
    directory: pathlib.Path
    checkpoints: pathlib.Path  # checkpoint.directory
    input: str  # resolved
    plan: dict
    warnings: str

    @property
    def bytes_by_tier(self):
        """Of the fullest rank of each tier."""
        return {tier: max(program["peak_bytes"][tier] for program in self.plan["programs"]) for tier in ("device", "host", "nvme")}


def find_trainer(binary):
    """The trainer at that path, or in PATH; raises Refused."""
    path = shutil.which(binary) if os.sep not in str(binary) else binary
    if not path or not os.access(path, os.X_OK) or pathlib.Path(path).is_dir():
        raise Refused(f"there is no trainer at {binary}: jobscripts/setup.sh builds it, --binary names another")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    match = re.fullmatch(r"quadrille (\S+) \((.*)\)\n", said.stdout)
    if said.returncode or not match:
        raise Refused(f"{path} does not run here as the trainer does: {(said.stderr or said.stdout).strip() or f'exit code {said.returncode}'}")
    return Trainer(pathlib.Path(path).resolve(), match[1], match[2])


# ---- what `plan` says ------------------------------------------------------------------------------------------------


def prepare(trainer, machine, layout, source, overrides, directory):
    """Plans a run. Raises Refused, in the trainer's words, where it is wrong, does not divide (code 2) or does not fit the machine's memory (3)."""
    check_directory(directory)
    overrides = list(overrides)
    written = _written(source, overrides)
    if machine.gpus and "device.backend" not in written:
        overrides.append("device.backend=cuda")
    own = f"output.directory={quoted(directory / 'output')}"
    resolved = trainer.plan(source, [*overrides, own], layout.ranks, "--resolved")
    if resolved.returncode:
        raise Refused(complaint(resolved))
    text = resolved.stdout
    keys = keys_of(text)
    if keys["output.directory"] != quoted(directory / "output"):
        raise Refused(f"the run would write to {keys['output.directory']}, not to {quoted(directory / 'output')}: --directory names another")
    if keys["checkpoint.resume"].strip('"') == "none":
        raise Refused("checkpoint.resume is none, so that each job would begin anew, and a run that is queued again must go on: "
                      "checkpoint.resume=auto")
    limits = {} if "device.memory_limit" in written else {"device.memory_limit": layout.device_memory or layout.memory}
    if layout.device_memory and "device.host_memory_limit" not in written:
        limits["device.host_memory_limit"] = layout.memory
    if "device.threads" not in written:
        limits["device.threads"] = layout.threads
    plan = _plan(trainer, text, [f"{key}={value}" for key, value in limits.items()], layout)
    checkpoints = pathlib.Path(json.loads(keys["checkpoint.directory"])).absolute()
    prepared = Prepared(source, overrides, layout, directory, checkpoints, _left_to_the_machine(text, written), plan, resolved.stderr)
    _check_node_memory(prepared, machine)
    return prepared


def check_directory(directory):
    """Raises Refused where a path can be no run's, for what is in it or in the working directory."""
    for what, path in (("the directory", directory), ("the working directory", pathlib.Path.cwd())):
        document.check_for_script(what, path)
    if "$" in str(directory) or os.fsencode(directory).decode(errors="replace") != str(directory):
        raise Refused(f"the directory {directory} has a $, as of a variable that nobody has filled in, or is not UTF-8: --directory names another")


def quoted(path):
    """As a value of an override, which is YAML: no character of it means anything."""
    return json.dumps(str(path), ensure_ascii=False)


def _written(source, overrides):
    """What the input and its overrides say, as {section.key: text}. A file that is wrong is the trainer's to refuse."""
    said = {}
    try:
        for section, item in document.read(source, document.Problems(source)).items():
            if isinstance(item.value, dict):
                said.update({f"{section}.{key}": str(entry.value) for key, entry in item.value.items()})
    except Refused:
        pass
    said.update(override.split("=", 1) for override in overrides if "=" in override)
    return {key: value for key, value in said.items() if value != "auto" or key in ("grid.order", "comm.bucket_size")}


def keys_of(text):
    """A resolved input as {section.key: text}."""
    values = {}
    for section, item in document.parse(text, document.Problems("the resolved input")).items():
        values.update({f"{section}.{key}": entry.text for key, entry in item.value.items()})
    return values


def _left_to_the_machine(text, written):
    """The resolved input, but for what the machine that runs it is to say: a plan knows no machine."""
    asked = [key for key in ("grid.order", "comm.bucket_size") if written.get(key) == "auto"]
    for key in asked + ["device.threads"] * ("device.threads" not in written):
        section, name = key.split(".")
        text = re.sub(rf"(?ms)^({section}:\n(?:  [^\n]*\n)*?  {name}:) [^\n]*$", r"\1 auto", text, count=1)
    return text


def _plan(trainer, text, limits, layout):
    """`plan --json` of a resolved input; raises Refused."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        done = trainer.plan(file.name, limits, layout.ranks, "--json")
        if done.returncode == 0:
            return json.loads(done.stdout)
        if done.returncode != NO_MEMORY:
            raise Refused(complaint(done))
        told = trainer.plan(file.name, limits, layout.ranks).stdout
    reasons = re.search(r"(?ms)^does not fit in .*?(?=^input as resolved|\Z)", told)
    raise Refused((reasons[0] if reasons else told).strip(), NO_MEMORY)


def _check_node_memory(prepared, machine):
    """Without GPUs both tiers are the node's memory."""
    layout, peaks = prepared.layout, prepared.bytes_by_tier
    needed = peaks["host"] + (0 if layout.device_memory else peaks["device"])
    if needed > layout.memory:
        raise Refused(f"does not fit: a rank needs {bytes_text(needed)} of its node's memory, device and host tier together, and {machine.name} has "
                      f"{bytes_text(machine.memory)} for {layout.ranks_per_node} ranks, {bytes_text(layout.memory)} each ({machine.path})", NO_MEMORY)


def complaint(process):
    """What a refused plan said, without the program's name."""
    said = re.sub(r"(?m)^quadrille: ", "", process.stderr).strip()
    return said or f"plan ended with exit code {process.returncode}"


def bytes_text(count):
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


# ---- the directory ---------------------------------------------------------------------------------------------------


def write_tools(directory, trainer, machine):
    """bin/ and machine.yaml: what does not change while runs are queued, whatever is built or edited meanwhile."""
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    for file, name in ((trainer.binary, "quadrille"), (HERE / "launch.sh", "launch.sh"), (HERE / "attempt.sh", "attempt.sh")):
        new = directory / "bin" / (name + ".new")
        with keeping.naming(new):
            shutil.copy2(file, new)
        new.replace(directory / "bin" / name)
    shutil.copyfile(machine.path, directory / "machine.yaml")


def write_run(prepared, trainer, machine, name, time, tools):
    """All files of a run that is not a point, or of a point but for its tools, which are in the directory `tools`. job.sh is written last."""
    directory, layout = prepared.directory, prepared.layout
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(prepared.source, directory / "source.yaml")
    keeping.write_whole(directory / "input.yaml", prepared.input)
    keeping.write_whole(directory / "plan.json", json.dumps(prepared.plan, indent=1) + "\n")
    command = [str(tools / "bin/quadrille"), "train", str(directory / "input.yaml")]
    job = {"name": name, "commit": trainer.commit, "version": trainer.version, "machine": machine.name, "nodes": layout.nodes, "ranks": layout.ranks,
           "ranks_per_node": layout.ranks_per_node, "threads": layout.threads, "time": time, "source": str(prepared.source),
           "overrides": prepared.overrides, "command": command, "folder": os.getcwd(), "made": now()}
    keeping.write_whole(directory / "job.json", json.dumps(job, indent=1) + "\n")
    body = script_body(machine, layout, time, tools, directory, command)
    write_script(directory / "job.sh", slurm.script_head(machine, layout, name, time, directory / "log.txt") + body)


def write_script(path, text):
    keeping.write_whole(path, text)
    path.chmod(0o755)


def script_body(machine, layout, time, tools, directory, command):
    """What a job does, the same in Slurm and without."""
    launch = [str(tools / "bin/launch.sh"), str(layout.ranks)]
    if machine.launch:
        launch = shlex.split(re.sub(r"{(\w+)}", lambda place: str(getattr(layout, place[1])), machine.launch))
    options = ["--run", str(directory), *(["--time", str(document.seconds_of(time))] if time else [])]
    lines = [f"cd {shlex.quote(os.getcwd())} || exit 2", *(f"module load {shlex.quote(name)} || exit 2" for name in machine.modules),
             *(f"export {name}={shlex.quote(value)}" for name, value in machine.environment.items()),
             f'exec {shlex.quote(str(tools / "bin/attempt.sh"))} "$@" {shlex.join(options)} \\',
             f"    {layout.ranks} {shlex.join(launch)} -- {shlex.join(command)}"]
    return "\n".join(lines) + "\n"


def array_body(folders):
    """Each job of an array is the run of its number; `folders`: {number: directory}."""
    cases = "".join(f"    {number}) exec bash {shlex.quote(str(folder / 'job.sh'))} ;;\n" for number, folder in sorted(folders.items()))
    return f'case $SLURM_ARRAY_TASK_ID in\n{cases}esac\nexit 2\n'


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def made_as(directory):
    """Where a run's directory was made, which its script and its input name; None where that is here, or where nothing tells it."""
    try:
        job = keeping.read(directory / "job.json", {"command": [str]}, "remove it: the run goes on without, only its report needs it")
    except FileNotFoundError:
        return None
    made = pathlib.Path(job["command"][-1]).parent if job["command"] else directory
    return None if made.exists() and made.samefile(directory) else made


def refuse_moved(directory, made, tool):
    """Raises Refused for a directory that was made elsewhere: its scripts would act on what is there."""
    instead = f"`{tool} {made}` goes on with that one" if made.exists() else "move it back there"
    raise Refused(f"{directory} was made as {made}, which its scripts name, so it cannot go on from here: {instead}, or begin a run from one of its "
                  "checkpoints (checkpoint.resume=PATH)")


# ---- starting --------------------------------------------------------------------------------------------------------


def start_here(directory):
    """Starts a run's script on this computer, apart from the terminal's signals; returns the process, which ends BUSY if another was first."""
    words = ["--here", "--after", str(standing.state_of(directory)["attempts"])]
    return subprocess.Popen(["bash", str(directory / "job.sh"), *words], stdin=subprocess.DEVNULL, start_new_session=True)


class Stopping:
    """While inside, SIGINT, SIGTERM and SIGUSR1 are noted, and passed on to the runs that were started: they save and stop."""

    def __init__(self):
        self.asked, self.processes = None, []

    def __enter__(self):
        self.former = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
        return self

    def __exit__(self, *ignored):
        for number, handler in self.former.items():
            signal.signal(number, handler)

    def _note(self, number, _frame):
        self.asked = self.asked or signal.Signals(number).name
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    def follow(self, process):
        self.processes.append(process)
        if self.asked:
            self._note(signal.Signals[self.asked], None)
        return process

"""Machine files: what a machine is like, and how a run of so many ranks lies on it.

Owns the keys of jobscripts/machines/NAME.yaml and the numbers derived from them: nodes, ranks per node, threads and memory of a rank. Knows nothing
of models; whether a run fits is the trainer's `plan` to say (runs.py).
"""
import dataclasses
import os
import pathlib
import re
import shlex

import document
import slurm
from document import Key, Refused, choice, count, nearest, one_line, or_word, size, text, texts, variables

FOLDER = pathlib.Path(__file__).resolve().parent / "machines"
PLACES = ("ranks", "nodes", "ranks_per_node", "threads")  # of a launch line: {ranks} and so on

TABLE = (
    Key("about", text, ""),  # a sentence for people
    Key("scheduler", choice("slurm", "none"), "none"),
    Key("nodes", count(1), 1),  # that a job may have at most
    Key("cores", or_word("auto", count(1)), None),  # of a node, for a job's use; auto: this computer's
    Key("memory", or_word("auto", size), None),  # of a node, for a job's use; auto: this computer's
    Key("gpus", count(0, 64), 0),  # of a node; with any, ranks have one each
    Key("gpu_memory", size, None),  # of one GPU
    Key("ranks_per_node", or_word("auto", count(1)), None),  # auto: a rank per GPU, or else per core
    Key("partition", or_word("null", one_line), None),
    Key("account", or_word("null", one_line), None),
    Key("time", or_word("null", document.duration), None),  # of a job, where --time does not say it
    Key("signal", count(0, 65535), 120),  # seconds before a job's end at which its ranks get SIGUSR1
    Key("options", texts, ()),  # further options of sbatch, a word each
    Key("modules", texts, ()),  # to load
    Key("environment", variables, {}),  # variables of a job
    Key("launch", or_word("auto", text), None),  # the launch line, with {ranks}, {nodes}, ...; auto: launch.sh's choice
)


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine file's values, in the order of TABLE, its name, and where they are from."""

    path: pathlib.Path
    name: str
    about: str
    scheduler: str
    nodes: int
    cores: int
    memory: int
    gpus: int
    gpu_memory: int
    ranks_per_node: int
    partition: str
    account: str
    time: str
    signal: int
    options: list
    modules: list
    environment: dict
    launch: str

    @property
    def slurm(self):
        return self.scheduler == "slurm"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a run lies on a machine: `memory` is a rank's share of its node's, `device_memory` of its GPU's (None: it has none)."""

    ranks: int
    nodes: int
    ranks_per_node: int
    threads: int
    memory: int
    device_memory: int


def names():
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name_or_path, name=None):
    """The machine of that name in machines/, or of that file; `name`: what it was called where the file is a copy, else the file's stem. Raises
    Refused with all that is wrong."""
    path = FOLDER / f"{name_or_path}.yaml"
    if os.sep in str(name_or_path) or str(name_or_path).endswith((".yaml", ".yml")):
        path = pathlib.Path(name_or_path).resolve()
    if not path.is_file():
        raise Refused(f"there is no machine '{name_or_path}'{nearest(name_or_path, names())}; there are {', '.join(names())}, or name a file like "
                      f"those in {FOLDER}")
    problems = document.Problems(path)
    entries = document.read(path, problems)
    values = document.check(entries, TABLE, problems, "a machine file")
    _check_sense(values, entries, problems)
    problems.raise_if_any()
    values["cores"] = values["cores"] or len(os.sched_getaffinity(0))
    values["memory"] = values["memory"] or memory_here()
    values["ranks_per_node"] = values["ranks_per_node"] or values["gpus"] or values["cores"]
    return Machine(path=path, name=name or path.stem, **values)


def _check_sense(values, entries, problems):
    slurm, item = values["scheduler"] == "slurm", entries.get
    for name in ("cores", "memory"):
        if slurm and values[name] is None:
            found = "auto" if name in entries else "nothing"
            problems.add(item(name), f"{name}: found {found}, allowed with scheduler slurm: what a node has for a job")
    if (values["gpus"] > 0) != (values["gpu_memory"] is not None):
        problems.add(item("gpus") or item("gpu_memory"), f"gpus is {values['gpus']} and gpu_memory {values['gpu_memory'] or 'not given'}: "
                     "both or neither")
    if 0 < values["gpus"] < (values["ranks_per_node"] or 0):
        problems.add(item("ranks_per_node"), f"ranks_per_node is {values['ranks_per_node']} but gpus {values['gpus']}: each rank has one of its own")
    if slurm and values["cores"] and values["ranks_per_node"] and values["ranks_per_node"] > values["cores"]:
        problems.add(item("ranks_per_node"), f"ranks_per_node is {values['ranks_per_node']} but cores {values['cores']}")
    for place in re.findall(r"{([^}]*)}", values["launch"] or ""):
        if place not in PLACES:
            problems.add(item("launch"), f"launch: {{{place}}} stands for nothing{nearest(place, PLACES)}; there are: {', '.join(PLACES)}")
    try:
        words = shlex.split(values["launch"] or "{ranks}")
    except ValueError as error:
        problems.add(item("launch"), f"launch: found {values['launch']}, which is no line of words: {error}")
    else:
        if not any("{ranks}" in word for word in words):
            problems.add(item("launch"), f"launch: found {values['launch']}, allowed: a line that has {{ranks}}, their number")


def default_name():
    """The machine where none is named: `laptop` where there is no Slurm, else none is a good guess."""
    if slurm.is_here():
        raise Refused(f"which machine? --machine takes one of {', '.join(names())}, or a file; --machine laptop runs here, without Slurm")
    return "laptop"


def memory_here():
    """Bytes of this computer's memory: the smaller of what it has and of its cgroup's limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(pathlib.Path(path).read_text()))
        except (OSError, ValueError):  # no such cgroup, or "max"
            pass
    return total


def _fewest_nodes(ranks, most):
    """That have equally many ranks each, at most `most`."""
    return next(nodes for nodes in range(-(-ranks // most), ranks + 1) if ranks % nodes == 0)


def lay_out(machine, ranks=None, nodes=None, ranks_per_node=None):
    """The Layout of a run; two of its three numbers give the third. Raises Refused where they do not go together, or the machine has less."""
    most = machine.ranks_per_node
    if ranks is None:
        ranks = (nodes or 1) * (ranks_per_node or most)
    if nodes is None:
        nodes = 1 if not machine.slurm else -(-ranks // ranks_per_node) if ranks_per_node else _fewest_nodes(ranks, most)
    if ranks_per_node is None:
        ranks_per_node = -(-ranks // nodes)
    if ranks != nodes * ranks_per_node:
        allowed = sorted({ranks_per_node * nodes, max(1, ranks // nodes) * nodes})
        raise Refused(f"{ranks} ranks are not {nodes} node{'s' * (nodes > 1)} of {ranks_per_node}: on {nodes} allowed are multiples of {nodes}, "
                      f"such as {' or '.join(map(str, allowed))}")
    if nodes > machine.nodes:
        raise Refused(f"{nodes} nodes are more than the {machine.nodes} that a job on {machine.name} may have ({machine.path})")
    if machine.slurm and ranks_per_node > machine.cores or machine.gpus and ranks_per_node > machine.gpus:
        has = f"{machine.gpus} GPUs" if machine.gpus else f"{machine.cores} cores"
        raise Refused(f"{ranks_per_node} ranks a node are more than its {has} ({machine.path})")
    return Layout(ranks, nodes, ranks_per_node, max(1, machine.cores // ranks_per_node), machine.memory // ranks_per_node, machine.gpu_memory)

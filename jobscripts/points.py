"""Sweep files, and the points they stand for.

Owns the keys of a sweep file (jobscripts/README.md), the product of its axes, and what weak and strong scaling derive from the ranks. Plans nothing
but the resolved base, which the derivation starts from; which points can run is runs.prepare's to say.
"""
import dataclasses
import itertools
import json
import pathlib
import re

import document
from document import Key, Refused, choice, count, folder_name, or_word, text

KEY = re.compile(r"[a-z_]+(\.[a-z_]+)+")
AXES = ("dp", "tp", "pp", "sp")


def overrides(item):
    """A mapping of section.key to any value, as {key: text}."""
    if not isinstance(item.value, dict):
        raise ValueError("a mapping of section.key to values")
    wrong = [key for key in item.value if not KEY.fullmatch(key)]
    if wrong:
        raise ValueError(f"keys written section.key, not {wrong[0]}")
    return {key: entry.text for key, entry in item.value.items()}


def ranks(item):
    """One number or several, in any order."""
    read = count(1)
    numbers = [read(entry) for entry in (item.value if isinstance(item.value, list) else [item])]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError("one or more numbers from 1 on, each once")
    return numbers


@dataclasses.dataclass(frozen=True)
class Axis:
    """What is varied: per value its name in `at`, as JSON has it, and the overrides it stands for."""

    name: str
    values: list  # of (plain, {key: text})


def axes(item):
    """section.key: [values], or a name: {bundle: {section.key: value}}."""
    if not isinstance(item.value, dict):
        raise ValueError("a mapping of axes")
    found, wrong = [], []
    for name, entry in item.value.items():
        try:
            found.append(_axis(name, entry))
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def _axis(name, entry):
    if name == "ranks":
        raise ValueError("axes other than ranks, which are a key of their own, beside vary")
    if KEY.fullmatch(name):
        if not isinstance(entry.value, list) or not entry.value:
            raise ValueError(f"a list of values for {name}")
        values = [(value.plain, {name: value.text}) for value in entry.value]
    else:
        if not isinstance(entry.value, dict) or not entry.value:
            raise ValueError(f"for {name}, which is no section.key, a mapping of names to overrides")
        values = [(bundle, overrides(given)) for bundle, given in entry.value.items()]
    if len({str(plain) for plain, _ in values}) < len(values):
        raise ValueError(f"each value of {name} once")
    return Axis(name, values)


TABLE = (
    Key("name", folder_name),  # default: the file's stem
    Key("about", text, ""),  # a sentence for titles
    Key("base", text, required=True),  # an input file, from this file's folder
    Key("kind", choice("product", "weak", "strong"), "product"),
    Key("ranks", ranks, required=True),
    Key("grows", choice(*AXES), None),  # weak and strong: the grid's axis that grows with the ranks; default dp
    Key("scales", choice("batch", "layers"), None),  # weak: what grows with the ranks; default batch
    Key("fixed", overrides, {}),  # of every point
    Key("vary", axes, ()),
    Key("repetitions", count(1, 1000), 1),
    Key("machine", or_word("null", text), None),
    Key("time", or_word("null", document.duration), None),
)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep file's values, in the order of TABLE but for machine and time, and where it is."""

    path: pathlib.Path
    name: str
    about: str
    base: pathlib.Path
    kind: str
    ranks: list
    grows: str
    scales: str
    fixed: dict
    vary: list
    repetitions: int
    machine: str
    time: str


def load(path):
    """Raises Refused with all that is wrong."""
    path = pathlib.Path(path).absolute()
    problems = document.Problems(path)
    entries = document.read(path, problems)
    values = document.check(entries, TABLE, problems, "a sweep file")
    base = path.parent / (values["base"] or "")
    if values["base"] and not base.is_file():
        problems.add(entries["base"], f"base: found {values['base']}, but there is no file {base}")
    _check_sense(values, entries, problems)
    problems.raise_if_any()
    name = values["name"] or path.stem
    document.check_for_script("the sweep's name", name)
    values["grows"] = None if values["kind"] == "product" else values["grows"] or "dp"
    values["scales"] = values["scales"] or "batch" if values["kind"] == "weak" else None
    return Sweep(path=path, **(values | {"name": name, "base": base.resolve()}))


def _check_sense(values, entries, problems):
    kind = values["kind"]
    for key, kinds in (("grows", ("weak", "strong")), ("scales", ("weak",))):
        if values[key] and kind not in kinds:
            problems.add(entries[key], f"{key} has no meaning with kind {kind}, only with {' and '.join(kinds)}")
    if kind != "product" and values["ranks"]:
        least = min(values["ranks"])
        for number in values["ranks"]:
            if number % least:
                problems.add(entries["ranks"], f"ranks: with kind {kind} each is a multiple of the fewest, {least}; {number} is not")
    used = {key: "fixed" for key in values["fixed"] or ()}
    derived = derived_keys(kind, values["grows"] or "dp", values["scales"] or "batch")
    for axis in values["vary"] or ():
        for key in {key for _, given in axis.values for key in given}:
            if key in used:
                problems.add(entries["vary"], f"{key} is both in {used[key]} and in axis {axis.name}")
            if key in derived and key.startswith(("grid.", "model.")):
                problems.add(entries["vary"], f"{key} is in axis {axis.name}, but kind {kind} derives it from the ranks")
            used[key] = f"axis {axis.name}"


def derived_keys(kind, grows, scales):
    """What a kind sets at each number of ranks."""
    if kind == "product":
        return ()
    batch = ("train.global_batch_size", "train.micro_batch_size", "train.gradient_accumulation_steps")
    return (f"grid.{grows}", *batch, *(("model.num_layers",) if kind == "weak" and scales == "layers" else ()))


def origin(sweep, key):
    """Where an override of a point is from, in words."""
    axis = next((axis.name for axis in sweep.vary if any(key in given for _, given in axis.values)), None)
    derived = key in derived_keys(sweep.kind, sweep.grows, sweep.scales)
    return f"kind {sweep.kind}" if derived else f"axis {axis}" if axis else "fixed"


# ---- points ----------------------------------------------------------------------------------------------------------


def combinations(sweep):
    """All points but for what depends on the ranks: pairs of `at` without ranks, and overrides {key: text}."""
    for chosen in itertools.product(*(axis.values for axis in sweep.vary)):
        at = {axis.name: plain for axis, (plain, _) in zip(sweep.vary, chosen)}
        given = dict(sweep.fixed)
        for _, of_axis in chosen:
            given.update(of_axis)
        yield at, given


def expand(sweep, resolve):
    """The points, as sweep.json has them but for index, layout and directory; `dropped` where the base itself is refused.

    `resolve(overrides, ranks)` is the base as resolved, {section.key: text}, or raises Refused.
    """
    points = []
    for at, given in combinations(sweep):
        least, base, dropped = min(sweep.ranks), None, None
        if sweep.kind != "product":
            try:
                base = resolve(_words(given), least)
            except Refused as refused:
                dropped = str(refused)
        for number in sweep.ranks:
            derived = derive(sweep, base, number // least) if base else {}
            place = {"ranks": number} | at
            for repetition in range(1, sweep.repetitions + 1):
                points.append({"name": _name(place, repetition), "at": place, "repetition": repetition, "ranks": number,
                               "overrides": _words(given | derived), "dropped": dropped})
    return points


def derive(sweep, base, factor):
    """Overrides of a weak or strong point, on `factor` times the fewest ranks; `base` is resolved there.

    Weak, batch: a rank's share of the sequences stays, so the batch grows. Weak, layers: the batch stays and the model grows. Strong: both stay, and
    ranks do less each, by fewer micro-batches where dp grows.
    """
    grows = sweep.kind == "weak"
    batch = int(base["train.global_batch_size"]) * (factor if grows and sweep.scales == "batch" else 1)
    derived = {f"grid.{sweep.grows}": str(int(base[f"grid.{sweep.grows}"]) * factor), "train.global_batch_size": str(batch),
               "train.micro_batch_size": base["train.micro_batch_size"], "train.gradient_accumulation_steps": "auto"}
    if grows and sweep.scales == "layers":
        derived["model.num_layers"] = str(int(base["model.num_layers"]) * factor)
    return derived


def identity(point):
    """What makes two points the same."""
    return _place(point), tuple(point["overrides"])


def made_otherwise(former, new):
    """A sentence on each of `new` that has the values and the repetition of one of `former` that was not dropped, but other overrides."""
    found = {_place(point): point for point in former if not point["dropped"]}
    pairs = [(found[_place(point)], point) for point in new if _place(point) in found]
    return [f"{before['name']} with {_only_in(before, after)} where it is now {_only_in(after, before)}" for before, after in pairs]


def _place(point):
    return json.dumps([point["at"], point["ranks"], point["repetition"]], sort_keys=True)


def _only_in(point, other):
    return " ".join(word for word in point["overrides"] if word not in other["overrides"]) or "the base's values"


def directory_name(index, point):
    """0003-ranks-2-zero_stage-1"""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(f"{key.rsplit('.', 1)[-1]}-{value}" for key, value in point["at"].items())).strip("-")[:60]
    return "-".join([f"{index:04d}", slug, *([str(point["repetition"])] if point["repetition"] > 1 else [])])


def _words(given):
    return [f"{key}={value}" for key, value in given.items()]


def _name(at, repetition):
    words = [f"{key.rsplit('.', 1)[-1]}={value}" for key, value in at.items()]
    return " ".join(words) + (f" #{repetition}" if repetition > 1 else "")

"""Inputs as flat dictionaries: "grid.tp" → 2. Of the resolved input that a record holds, or of two of them what differs; and the reading of JSON
files, which plans and sweeps are. Needs PyYAML."""
import json
import re

import yaml

from record import DAMAGED, RecordError

COUNTS = ("train.gradient_accumulation_steps", "pipeline.virtual_stages")  # what reports calculate with
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def flat(text):
    """{section.key: value} of an input; deeper mappings, which are values of a key, stay whole."""
    return _flattened(yaml.safe_load(text) or {})


def of(run):
    """The same of a record.Record's input. Raises RecordError where it is none, as no trainer writes."""
    try:
        tree = yaml.safe_load(run.config_yaml) or {}
    except (yaml.YAMLError, ValueError) as error:  # a ValueError: a date that is none
        raise RecordError(f"{run.path} is damaged: the attribute yaml of config is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(tree, dict):
        raise RecordError(f"{run.path} is damaged: the attribute yaml of config is no mapping")
    settings = _flattened(tree)
    for key in COUNTS:
        if not isinstance(settings.get(key, 1), int) or settings.get(key, 1) < 1:
            raise RecordError(f"{run.path} is damaged: by the attribute yaml of config {key} is {settings[key]}, which is no count")
    return settings


def _flattened(tree):
    values = {}
    for section, keys in tree.items():
        if isinstance(keys, dict):
            values.update({f"{section}.{key}": value for key, value in keys.items()})
        else:
            values[str(section)] = keys
    return values


def read_json(path, what):
    """The object in a JSON file; `what` the file should be. Raises RecordError where it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} is no {what}: {error}", DAMAGED) from error
    if not isinstance(found, dict):
        raise RecordError(f"{path} is no {what}: it is no object", DAMAGED)
    return found


def bytes_of(value):
    """Bytes of 2048 or "64MiB", as inputs write them; None of what is neither."""
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB|)", str(value))
    return int(found[1]) * UNITS[found[2]] if found else None


def differences(a, b):
    """[(key, value in one, value in the other)] of two flat inputs, in order of keys; None where one has no such key."""
    return [(key, a.get(key), b.get(key)) for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key) or (key in a) != (key in b)]

"""The JSON files that the job scripts keep of runs and sweeps: read with all that is used of them checked, and written whole.

Owns the reading of state.json, job.json, jobs.json and sweep.json, and what is said of one that is damaged. What their keys mean is in
jobscripts/README.md. Of state.json attempt.sh, which writes it, reads what it needs by itself.
"""
import contextlib
import json
import os

from document import UNREADABLE, Refused


class Damaged(Refused):
    """A file that is not what the job scripts write, with its name and what to do."""


def read(path, shape, remedy):
    """What the file holds; raises Damaged, whose last words are `remedy`, where that is not of the shape, and FileNotFoundError.

    A shape is a dict of the keys that must be there and their shapes, a list of one shape that all entries have, a set of allowed values, or a
    type, or several.
    """
    try:
        value = json.loads(path.read_bytes().decode("utf-8", "replace"))
        wrong = _wrong(value, shape, "")
    except (ValueError, RecursionError) as error:
        wrong = "is empty" if not path.stat().st_size else f"is no JSON: {error}"
    if wrong:
        raise Damaged(f"{path} is damaged: it {wrong}; {remedy}", UNREADABLE)
    return value


def _wrong(value, shape, place):
    """What is not of the shape, or ""; `place`: where in the file."""
    at = f" at {place}" if place else ""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"has no object{at}"
        lacking = next((key for key in shape if key not in value), None)
        if lacking:
            return f"has no {lacking}{at}"
        return next(filter(None, (_wrong(value[key], inner, f"{place}.{key}".lstrip(".")) for key, inner in shape.items())), "")
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"has no list{at}"
        return next(filter(None, (_wrong(entry, shape[0], f"{place}[{index}]") for index, entry in enumerate(value))), "")
    right = value in shape if isinstance(shape, set) and isinstance(value, str) else isinstance(shape, (type, tuple)) and isinstance(value, shape)
    return "" if right else f"has {json.dumps(value)[:60]}{at}"


def write_whole(path, text):
    """Replaces a file in one go; also after a power cut it is either the former one or this. What goes wrong names it."""
    new = path.with_name(path.name + ".new")
    with naming(new), open(new, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@contextlib.contextmanager
def naming(path):
    """A full disk is told of without a name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise

"""What a record and a trace hold (src/record/README.md), one row for each attribute and dataset; and a file read by such rows, which are checked.

Lengths of one name agree, numbers are of their kind, names that others look up are there. What the numbers mean is record.py's. Reads only.
"""
import dataclasses

import h5py
import numpy


class Damage(Exception):
    """What of a file is not as its rows say: a sentence without the file's name."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """What each cell of a dataset is: of numpy's type, between two numbers, or not finite where that may be."""

    words: str
    type: str
    least: float = 0
    most: float = 0
    or_not_finite: bool = False


LARGEST = 1e60  # no run measures as much, and sums and products of such numbers are still finite
COUNT = Kind("a whole number from 0 to 2^53", "i8", 0, 2**53)
COUNT_OR_NONE = Kind("a whole number from -1 to 2^53", "i8", -1, 2**53)
HASH = Kind("64 bits", "i8", -(2**63), 2**63 - 1)
NUMBER = Kind("a finite number below 1e60", "f8", -LARGEST, LARGEST)
TRAINED = Kind("a number below 1e60, or not finite", "f8", -LARGEST, LARGEST, True)  # what diverges in training is NaN or infinite
NAME = Kind("text", "O")


@dataclasses.dataclass(frozen=True)
class Attribute:
    """`type`: str, int or bool; `absent`: its value where the file has none, None where it must have one."""

    field: str
    where: str
    name: str
    type: type
    absent: object = None


@dataclasses.dataclass(frozen=True)
class Texts:
    """All attributes of a group, which are texts."""

    field: str
    where: str


@dataclasses.dataclass(frozen=True)
class Dataset:
    """`dims`: names of lengths, or lengths, none of a scalar; `names`: what a table of names must have, each once; `rows_of`: the length that a
    column of row numbers stays below."""

    field: str
    path: str
    kind: Kind
    dims: str = ""
    names: tuple = ()
    rows_of: str = ""


SCHEMA = Attribute("schema", "/", "schema", str, "no schema")
CATEGORIES = ("compute", "optimizer", "exposed_dp", "exposed_tp", "exposed_sp", "exposed_pp", "pipeline_idle", "exposed_copy", "exposed_disk", "data",
              "checkpoint", "compression", "other")
TIERS, BOOKS = ("device", "host", "nvme"), ("weights", "gradients", "optimizer", "activations", "buffers")
QUEUES = ("copy_in", "copy_out", "disk")

RUN = (
    SCHEMA,
    *(Attribute(name, "/", name, str) for name in ("version", "git_commit", "command", "start_time")),
    Attribute("exit_code", "/", "exit_code", int),
    Attribute("complete", "/", "complete", bool),
    Attribute("continues", "/", "continues", str, ""),
    Attribute("continues_after", "/", "continues_after", int, 0),
    Attribute("config_yaml", "config", "yaml", str),
    Texts("environment", "environment"),
    Texts("choices", "choices"),
    Dataset("coordinates", "grid/coordinates", COUNT, "rank 4"),
    Dataset("hosts", "grid/hosts", NAME, "rank"),
    Dataset("step", "steps/step", COUNT, "step"),
    Dataset("loss", "steps/loss", TRAINED, "step"),
    Dataset("grad_norm", "steps/grad_norm", TRAINED, "step"),
    Dataset("clip_factor", "steps/clip_factor", TRAINED, "step"),
    Dataset("learning_rate", "steps/learning_rate", NUMBER, "step"),
    Dataset("loss_scale", "steps/loss_scale", NUMBER, "step"),
    Dataset("tokens", "steps/tokens", COUNT, "step"),
    Dataset("seconds", "steps/seconds", NUMBER, "step"),
    Dataset("data_hash", "steps/data_hash", HASH, "step"),
    Dataset("residual_norm", "steps/residual_norm", TRAINED, "step"),
    Dataset("evaluation_step", "evaluation/step", COUNT, "evaluation"),
    Dataset("evaluation_loss", "evaluation/loss", TRAINED, "evaluation"),
    Dataset("evaluation_seconds", "evaluation/seconds", NUMBER, "evaluation"),
    Dataset("categories", "time/categories", NAME, "category", CATEGORIES),
    Dataset("time", "time/seconds", NUMBER, "step rank category"),
    Dataset("tiers", "memory/tiers", NAME, "tier", TIERS),
    Dataset("books", "memory/books", NAME, "book", BOOKS),
    Dataset("predicted_peak", "memory/predicted_peak", COUNT, "rank tier book"),
    Dataset("measured_peak", "memory/measured_peak", COUNT, "rank tier book"),
    Dataset("reserved", "memory/reserved", COUNT, "rank tier"),
    Dataset("huge_pages", "memory/huge_pages", COUNT_OR_NONE, "rank tier"),
    Dataset("shared", "memory/shared", COUNT, "rank"),
    Dataset("process_peak", "memory/process_peak", COUNT, "rank"),
    Dataset("wire_axes", "wire/axes", NAME, "axis"),
    Dataset("wire_predicted", "wire/predicted", COUNT, "rank axis"),
    Dataset("wire_sent", "wire/sent", COUNT, "rank axis"),
    Attribute("wire_estimated", "wire/sent", "estimated", bool),
    Dataset("wire_uncompressed", "wire/uncompressed", COUNT, "rank axis"),
    Dataset("wire_busy", "wire/busy", NUMBER, "step rank axis"),
    Dataset("wire_exposed", "wire/exposed", NUMBER, "step rank axis"),
    Dataset("compute_beside", "wire/compute_beside", NUMBER, "step rank"),
    Dataset("compute_alone", "wire/compute_alone", NUMBER, "step rank"),
    Dataset("copy_queues", "copies/queues", NAME, "queue", QUEUES),
    Dataset("copies_predicted", "copies/predicted", COUNT, "rank queue"),
    Dataset("copies_moved", "copies/moved", COUNT, "rank queue"),
    Dataset("model_flops", "flops/model", NUMBER),
    Dataset("hardware_flops", "flops/hardware", NUMBER),
)

TRACE = (
    Dataset("queues", "trace/queues", NAME, "queue", ("compute",)),
    Dataset("ops", "trace/ops", NAME, "op"),
    Dataset("step", "trace/step", COUNT, "event"),
    Dataset("rank", "trace/rank", COUNT, "event"),
    Dataset("queue", "trace/queue", COUNT, "event", rows_of="queue"),
    Dataset("op", "trace/op", COUNT, "event", rows_of="op"),
    Dataset("begin", "trace/begin", NUMBER, "event"),
    Dataset("end", "trace/end", NUMBER, "event"),
    Dataset("tiers", "memory/tiers", NAME, "tier", TIERS),
    Dataset("books", "memory/books", NAME, "book", BOOKS),
    Dataset("memory_rank", "memory/rank", COUNT, "change"),
    Dataset("memory_tier", "memory/tier", COUNT, "change", rows_of="tier"),
    Dataset("memory_op", "memory/op", COUNT, "change", rows_of="op"),
    Dataset("memory_time", "memory/time", NUMBER, "change"),
    Dataset("memory_bytes", "memory/bytes", COUNT, "change book"),
)


def read(file, rows):
    """{field: value} of an open file. Raises Damage."""
    values, lengths = {}, {}  # lengths: {name: (length, the dataset that has it first)}
    for row in rows:
        if isinstance(row, Attribute):
            values[row.field] = attribute(file, row)
        elif isinstance(row, Texts):
            values[row.field] = _texts(file, row)
        else:
            values[row.field] = _dataset(file, row, lengths)
    return values


def _told(path, ask):
    """What h5py says when asked; whatever it raises is a file that it cannot read, since nothing else is done here."""
    try:
        return ask()
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, MemoryError) as error:
        raise Damage(f"{path} cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}") from error


def _item(file, path):
    """The group or dataset; None where there is none."""
    return _told(path, lambda: file[path] if path in file else None)


# ---- attributes ----------------------------------------------------------------------------------------------------------

def attribute(file, row):
    """One attribute's value. Raises Damage."""
    place = f"the attribute {row.name} of {row.where}"
    item = _item(file, row.where)
    if item is None or not _told(place, lambda: row.name in item.attrs):
        if row.absent is None:
            raise Damage(f"{place} is missing")
        return row.absent
    value = _told(place, lambda: item.attrs[row.name])
    if row.type is str:
        return _text(value, place)
    if not isinstance(value, numpy.integer):
        raise Damage(f"{place} is no whole number")
    return row.type(value)


def _texts(file, row):
    group = _item(file, row.where)
    if group is None:
        raise Damage(f"the group {row.where} is missing")
    found = _told(row.where, lambda: dict(group.attrs))
    return {_text(name, row.where): _text(value, f"the attribute {name} of {row.where}") for name, value in found.items()}


def _text(value, place):
    """A text that can be written: bytes that are no UTF-8, as a command line may have, become replacement characters."""
    if not isinstance(value, str):
        raise Damage(f"{place} is no text")
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# ---- datasets ------------------------------------------------------------------------------------------------------------

def _dataset(file, row, lengths):
    data = _item(file, row.path)
    if not isinstance(data, h5py.Dataset):
        raise Damage(f"there is no dataset {row.path}")
    _check_type(data, row)
    _check_shape(data, row, lengths)
    if row.kind is NAME:
        return _names(data, row)
    values = _told(row.path, lambda: data[()])
    _check_numbers(values, row, lengths)
    return values if row.dims else float(values)


def _check_type(data, row):
    found = _told(row.path, lambda: data.dtype)
    fits = h5py.check_string_dtype(found) if row.kind is NAME else found == numpy.dtype(row.kind.type)
    if not fits:
        raise Damage(f"{row.path} is of the type {found}, where each is {row.kind.words}")


def _check_shape(data, row, lengths):
    dims = row.dims.split()
    if data.shape is None or len(data.shape) != len(dims):
        raise Damage(f"{row.path} has the shape {data.shape}, where ({', '.join(dims)}) is due")
    room = data.file.id.get_filesize()
    if data.size * data.dtype.itemsize > room:
        raise Damage(f"{row.path} has the shape {data.shape}, which is more than the {room} bytes of the file")
    for dim, length in zip(dims, data.shape):
        due, first = (int(dim), "its layout") if dim.isdigit() else lengths.setdefault(dim, (length, row.path))
        if length != due:
            raise Damage(f"{row.path} has {length} in place of {due} along {dim}, by {first}")


def _names(data, row):
    found = _told(row.path, lambda: [str(name) for name in data.asstr(errors="replace")[()]])
    wrong = [name for name in row.names if found.count(name) != 1]
    if wrong:
        raise Damage(f"{row.path} has {found.count(wrong[0])} times {wrong[0]}, where once is due")
    return found


def _check_numbers(values, row, lengths):
    kind = row.kind
    right = (values >= kind.least) & (values <= kind.most)
    if kind.or_not_finite:
        right |= ~numpy.isfinite(values)
    if not numpy.all(right):
        first = values.ravel()[int(numpy.argmin(right))]
        raise Damage(f"{row.path} holds {first}, where each is {kind.words}")
    if row.rows_of and values.size and values.max() >= lengths[row.rows_of][0]:
        count, path = lengths[row.rows_of]
        raise Damage(f"{row.path} points at row {values.max()} of {path}, which has {count}")

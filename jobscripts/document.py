"""Machine and sweep files: YAML read as the trainer reads its input. Every problem is found in one pass and told at once, with file, line and column.

Owns the reading of YAML, with places, the checking of a mapping against a table of keys, and the form of a complaint. Which keys there are is its
callers'. Scalars are kept as they were written: `1e-4`, `on` and `01:00:00` mean to the trainer and to Slurm what they say, not what YAML 1.1 makes
of them. Needs PyYAML.
"""
import argparse
import dataclasses
import difflib
import json
import pathlib
import re
import sys
import unicodedata

try:
    import yaml
except ImportError as error:
    sys.exit(f"jobscripts: {error} for {sys.executable}; on Debian: apt-get install python3-yaml, which /usr/bin/python3 then has, "
             "elsewhere: pip install pyyaml")

REFUSED, UNREADABLE, INTERRUPTED = 2, 5, 130  # exit codes
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class Refused(Exception):
    """What the user has to mend, in sentences; `code` is the exit code."""

    def __init__(self, text, code=REFUSED):
        super().__init__(text)
        self.code = code


def exit_code(tool, work):
    """What `tool` exits with, which does `work` (a function that returns a code): what is refused or cannot be read or written is told of."""
    try:
        return work()
    except Refused as refused:
        print(f"{tool}: " + str(refused).replace("\n", "\n  "), file=sys.stderr)
        return refused.code
    except OSError as error:
        names = " to ".join(str(name) for name in (error.filename, error.filename2) if name is not None)  # of a copy both: either may be at fault
        print(f"{tool}: {names}: {error.strerror}", file=sys.stderr)
        return UNREADABLE
    except KeyboardInterrupt:
        print(f"{tool}: interrupted", file=sys.stderr)
        return INTERRUPTED


@dataclasses.dataclass(frozen=True)
class Item:
    """A value as it was written, and where: `value` is a str, a list of Items, or a dict of name → Item."""

    value: object
    line: int
    column: int
    quoted: bool = False

    @property
    def text(self):
        """As one line of YAML, for an override."""
        if isinstance(self.value, dict):
            return "{" + ", ".join(f"{name}: {item.text}" for name, item in self.value.items()) + "}"
        if isinstance(self.value, list):
            return "[" + ", ".join(item.text for item in self.value) + "]"
        return json.dumps(self.value, ensure_ascii=False) if self.quoted else self.value

    @property
    def plain(self):
        """As JSON has it: a number, boolean or null where it is written so, else a text."""
        if isinstance(self.value, (dict, list)) or self.quoted:
            return self.value if self.quoted else self.text
        if re.fullmatch(r"[-+]?(0|[1-9]\d*)", self.value):
            return int(self.value)
        if re.fullmatch(r"[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?", self.value) and not re.match(r"[-+]?0\d", self.value):
            return float(self.value)
        return {"true": True, "false": False, "null": None, "~": None, "": None}.get(self.value, self.value)


class Problems:
    """What is wrong with a file, one line each, in the order of their places."""

    def __init__(self, path):
        self.path, self.lines = path, []

    def add(self, item, sentence):
        """`item`: whose place it is; None: the whole file's."""
        place = (item.line, item.column) if item else (0, 0)
        self.lines.append((place, f"{self.path}{f':{place[0]}:{place[1]}' if item else ''}: {sentence}"))

    def raise_if_any(self):
        if self.lines:
            raise Refused("\n".join(text for _, text in sorted(self.lines, key=lambda line: line[0])))


@dataclasses.dataclass(frozen=True)
class Key:
    """A row of a table: `read` takes an Item and returns the value, or raises ValueError with what is allowed."""

    name: str
    read: object
    default: object = None
    required: bool = False


def nearest(word, names):
    """A hint at the known name that a wrong one may have meant, or ""."""
    close = difflib.get_close_matches(str(word), [str(name) for name in names], 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""


def read(path, problems):
    """The top mapping of a file as {name: Item}, empty where it is none. What is no YAML at all raises Refused."""
    try:
        text_of_file = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path}: is not UTF-8") from None
    return parse(text_of_file, problems)


def parse(text_of_file, problems):
    """The same of a text."""
    try:
        node = yaml.compose(text_of_file, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark, what = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        raise Refused(f"{problems.path}{f':{mark.line + 1}:{mark.column + 1}' if mark else ''}: is not YAML: {what}") from None
    except RecursionError:
        raise Refused(f"{problems.path}: is nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        problems.add(None, "found no mapping of keys to values")
        return {}
    return _item(node, problems).value


def _item(node, problems):
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    if isinstance(node, yaml.ScalarNode):
        return Item(node.value, line, column, node.style in ("'", '"'))
    if isinstance(node, yaml.SequenceNode):
        return Item([_item(child, problems) for child in node.value], line, column)
    entries = {}
    for key, child in node.value:
        at = Item(None, key.start_mark.line + 1, key.start_mark.column + 1)
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            problems.add(at, "found a key that is no plain name (merge keys are not read)")
        elif key.value in entries:
            problems.add(at, f"found {key.value} twice, first at line {entries[key.value].line}")
        else:
            item = _item(child, problems)
            entries[key.value] = dataclasses.replace(item, line=at.line, column=at.column)
    return Item(entries, line, column)


def check(entries, table, problems, what):
    """The values of a mapping by the table of its keys, with defaults for what is not there: {name: value}.

    `what` names the mapping in complaints.
    """
    rows = {row.name: row for row in table}
    values = {row.name: row.default for row in table}
    for name, item in entries.items():
        if name not in rows:
            problems.add(item, f"{name} is no key of {what}{nearest(name, rows)}; there are: {', '.join(rows)}")
            continue
        try:
            values[name] = rows[name].read(item)
        except ValueError as error:
            found = f"found {item.text or 'nothing'}, " if len(item.text) < 60 and not isinstance(item.value, dict) else ""
            problems.add(item, f"{name}: {found}allowed: {error}")
    for row in table:
        if row.required and row.name not in entries:
            problems.add(None, f"{row.name} is missing")
    return values


# ---- readers of values -----------------------------------------------------------------------------------------------


def text(item):
    if not isinstance(item.value, str) or (not item.quoted and item.plain is None):
        raise ValueError("a text")
    return item.value


def one_line(item):
    """A text that can be a word of a script: sbatch reads it line by line."""
    if has_control(text(item)):
        raise ValueError("a text without line breaks and other control characters")
    return item.value


def folder_name(item):
    """A text that names one folder."""
    if not one_line(item) or "/" in item.value or item.value.startswith("."):
        raise ValueError("a name for a folder: without /, and not beginning with a dot")
    return item.value


def has_control(words):
    return any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in words)


def check_for_script(what, words):
    """Raises Refused where a text that is to stand in a script cannot: a line break would begin another of its commands."""
    if has_control(str(words)):
        raise Refused(f"{what} has a line break or another control character, which scripts cannot hold: {json.dumps(str(words))}")


def choice(*words):
    def read_choice(item):
        if item.value not in words:
            raise ValueError(" | ".join(words) + (nearest(item.value, words) if isinstance(item.value, str) else ""))
        return item.value
    return read_choice


def count(least, most=2**31 - 1):
    def read_count(item):
        if not isinstance(item.plain, int) or isinstance(item.plain, bool) or not least <= item.plain <= most:
            raise ValueError(f"an integer {least} to {most}")
        return item.plain
    return read_count


def size(item):
    """Bytes: 96GiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB|)", item.value) if isinstance(item.value, str) else None
    if not match or float(match[1]) <= 0:
        raise ValueError("a number of bytes, such as 96GiB")
    return int(float(match[1]) * UNITS[match[2]])


def or_word(word, reader):
    """`word` (auto, null) stands for None."""
    def read_either(item):
        if isinstance(item.value, str) and not item.quoted and (item.value == word or (word == "null" and item.plain is None)):
            return None
        try:
            return reader(item)
        except ValueError as error:
            raise ValueError(f"{error}, or {word}") from None
    return read_either


def texts(item):
    if not isinstance(item.value, list) or not all(isinstance(entry.value, str) and not has_control(entry.value) for entry in item.value):
        raise ValueError("a list of texts without control characters")
    return [entry.value for entry in item.value]


def variables(item):
    """Of a shell."""
    entries = item.value if isinstance(item.value, dict) else {"": item}
    if not all(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and isinstance(entry.value, str) and not has_control(entry.value)
               for name, entry in entries.items()):
        raise ValueError("a mapping of variables, such as OMP_PLACES, to texts without control characters")
    return {name: entry.value for name, entry in item.value.items()}


def duration(item):
    """Slurm's forms with hours: [days-]hours:minutes:seconds, more than none. As it was written."""
    if not isinstance(item.value, str) or not re.fullmatch(r"(\d+-)?\d{1,3}:[0-5]?\d:[0-5]?\d", item.value) or not seconds_of(item.value):
        raise ValueError("[days-]hours:minutes:seconds, from 0:0:1 on")
    return item.value


def positive(word):
    """The type of an option that takes a number from 1 on."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is not a number from 1 on")
    return int(word)


def time_option(word):
    """--time, which may be None; raises Refused."""
    try:
        return word and duration(Item(word, 0, 0))
    except ValueError as error:
        raise Refused(f"--time: found {word}, allowed: {error}") from None


def seconds_of(text_of_time):
    """The seconds of what `duration` has read."""
    days, _, clock = text_of_time.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds

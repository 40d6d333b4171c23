"""Records and traces with one attribute, dataset or group damaged: the scripts end with 0 or 5, each refusal with one sentence that names the file.

The damages are drawn from all of them with a fixed seed. Records that open are compared, and those with odd numbers are reported on as well.
"""
import random
import shutil
import sys
import warnings

import hand_made  # first: it finds postproc/, or skips
import h5py
import numpy

import compare
import record
import report
import trace
from commands import HERE, call, folder

SEED, DAMAGES = 7, 100
WHOLE = folder("whole")
hand_made.write(WHOLE / "run.h5")
hand_made.write_trace(WHOLE / "trace.h5")

VALUES = {"number": -7, "text": "x: [1, ", "empty": "", "array": numpy.array([1.0, numpy.nan]), "bytes": numpy.bytes_(b"\xff\xfe"),
          "nothing": h5py.Empty("f"), "not a number": numpy.nan}  # of an attribute
NUMBERS = {"not a number": lambda old: numpy.full(old.shape, numpy.nan), "infinite": lambda old: numpy.full(old.shape, numpy.inf),
           "zero": numpy.zeros_like, "negative": lambda old: old * 0 - 1, "greatest": lambda old: numpy.full_like(old, _greatest(old)),
           "complex": lambda old: old + 1j}
ANY = {"short": lambda old: old[:-1], "of no rows": lambda old: old[:0], "of other dims": lambda old: old.reshape(-1, 1, 1, 1),
       "text": lambda old: "hello", "nothing": lambda old: h5py.Empty("f")}
NAMES = {"all the same": lambda old: ["compute"] * len(old), "no UTF-8": lambda old: [b"\xff%d" % i for i in range(len(old))]}


def _greatest(old):
    return 1e308 if old.dtype.kind == "f" else numpy.iinfo(old.dtype).max


def damages(path):
    """[(item, attribute or None, name of the damage, what replaces it)] of a file; None for what is removed."""
    found = []

    def visit(name, item):
        found.extend((name, key, how, value) for key in item.attrs for how, value in (VALUES | {"missing": None}).items())
        if isinstance(item, h5py.Group):
            found.append((name, None, "a number", lambda old: 3))
        else:
            numbers = item.dtype.kind in "if"
            found.extend((name, None, how, of) for how, of in ((ANY if item.shape else {}) | (NUMBERS if numbers else NAMES)).items())
        found.append((name, None, "missing", None))

    with h5py.File(path) as file:
        visit("/", file)
        file.visititems(visit)
    return [damage for damage in found if damage[0] != "/" or damage[1]]


def damage(path, item, key, value):
    with h5py.File(path, "r+") as file:
        if key:
            del file[item].attrs[key]
            if value is not None:
                file[item].attrs[key] = value
            return
        old = file[item]
        attributes, content = dict(old.attrs), old[()] if isinstance(old, h5py.Dataset) else None
        del file[item]
        if value is not None:
            made = value(numpy.asarray(content)) if content is not None else value(content)
            file[item] = made
            file[item].attrs.update(attributes)


def complaint(program, arguments, damaged):
    """What is wrong with how a script ends on a damaged file; "" where it is right."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, _, err = call(program, *arguments)
    except Exception as error:  # what a user would see as a traceback is what is looked for
        return f"{program.__name__}: {type(error).__name__}: {error}"
    right = code == 0 and not err or code == 5 and damaged in err and len(err.splitlines()) == 1
    return "" if right else f"{program.__name__}: exit {code}, {err}"


def every_damage_is_told():
    cases = [("run.h5", *case) for case in damages(WHOLE / "run.h5")] + [("trace.h5", *case) for case in damages(WHOLE / "trace.h5")]
    made, wrong, refused = folder("damaged"), [], 0
    for name, item, key, how, value in random.Random(SEED).sample(cases, DAMAGES):
        for whole in ("run.h5", "trace.h5"):
            shutil.copy(WHOLE / whole, made / whole)
        damage(made / name, item, key, value)
        opens = _opens(made / name)
        refused += not opens
        programs = [(trace, [made])] if name == "trace.h5" else [(compare, [made, WHOLE])]
        if opens and how in NUMBERS:
            programs.append((report, [made]))
        wrong += [f"{name} {item} {key or ''}, {how}: {said}" for program, words in programs if (said := complaint(program, words, str(made / name)))]
    assert not wrong, "\n".join([f"{len(wrong)} of {DAMAGES}, seed {SEED}:", *wrong])
    assert refused > DAMAGES // 3, f"only {refused} of {DAMAGES} were refused"


def _opens(path):
    try:
        (record.load_trace if path.name == "trace.h5" else record.load)(path)
    except record.RecordError:
        return False
    return True


CHECKS = (every_damage_is_told,)

if __name__ == "__main__":
    sys.exit(hand_made.run_checks(CHECKS))

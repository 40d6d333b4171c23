"""What must not change the numbers does not: runs the cases of cases.py and compares records.

Each case is one run of the trainer on its grid, compared with a reference of the same model: the serial run, to a tolerance
that grows from step 1 to the last, or another split, bit for bit. Every record is also held to its own promises: finite
numbers, the same data as the reference, predicted bytes equal to measured ones.
"""
import functools
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import FULL, Trainer, check_ledgers, numpy, parse_arguments, read_record, report, show, write_counting_text  # noqa: E402

from cases import CHOSEN, GROUPS, MODELS, overrides  # noqa: E402

STEPS = 6  # of a run, unless its split says otherwise: a wrong update shows in the step after it, and a small one grows from step to step


class Runs:
    """Runs by (model, split), each done once."""

    def __init__(self, trainer, text):
        self.trainer = trainer
        self.text = text
        self.done = {}

    def record(self, model, split, again=False):
        """The record of a run and its seconds; raises RuntimeError with the output of a run that failed."""
        key = (model, split)
        if again or key not in self.done:
            self.done[key] = self.run(model, split)
        return self.done[key]

    def run(self, model, split):
        source = MODELS[model] | {"data": MODELS[model]["data"] | {"train": [str(self.text)]}, "offload": {"nvme_path": str(self.text.parent)},
                                  "train": MODELS[model]["train"] | {"steps": STEPS}}
        changes, ranks = overrides(split)
        result = self.trainer.train(source, ranks, [*changes, "output.overwrite=true"])
        if result.exit_code != 0:
            raise RuntimeError(show(result))
        record = read_record(result.output)
        said = [int(step) for step in re.findall(r"^step +(\d+)/", result.stdout, re.MULTILINE)]
        if said != record["steps/step"].tolist():
            raise RuntimeError(f"one line per step was due, stdout has the steps {said}")
        return record, result.seconds


def relative(values, reference):
    return numpy.abs(values - reference) / numpy.maximum(numpy.abs(reference), 1e-30)


def compare(case, record, reference):
    """Complaints about one case, and its largest relative differences at the first and the last step."""
    complaints, first, last = [], 0.0, 0.0
    evaluated = ["evaluation/loss"] if len(reference.get("evaluation/loss", ())) else []
    for name in ["steps/loss", *([] if case.lossy else ["steps/grad_norm"]), *evaluated]:
        ours, theirs = record[name], reference[name]
        if ours.shape != theirs.shape:
            return [f"{name}: {len(ours)} steps, the reference has {len(theirs)}"], numpy.inf, numpy.inf
        difference = numpy.abs(ours - theirs) if case.lossy else relative(ours, theirs)
        allowed = numpy.zeros(len(ours)) if case.bitwise else numpy.geomspace(case.first, case.last, len(ours))
        if case.lossy:
            allowed = numpy.where(numpy.arange(len(ours)) == 0, 0, case.last)
        wrong = numpy.flatnonzero(~(difference <= allowed))
        if wrong.size:
            at = wrong[0]
            complaints.append(f"{name} at step {at + 1}: {ours[at]!r}, the reference {theirs[at]!r}: "
                              f"{'' if case.lossy else 'relative '}difference {difference[at]:.2e}, allowed {allowed[at]:.2e}")
        first, last = max(first, difference[0]), max(last, difference.max() if case.lossy else difference[-1])
    for name in ("tokens", "data_hash", "learning_rate"):
        if not numpy.array_equal(record[f"steps/{name}"], reference[f"steps/{name}"]):
            complaints.append(f"{name} differs: {record[f'steps/{name}'][:3]}..., the reference {reference[f'steps/{name}'][:3]}...")
    return complaints, first, last


def check_case(runs, case):
    """Complaints about one case, and a remark that says how far it is from its reference."""
    reference, _ = runs.record(case.model, case.reference)
    record, seconds = runs.record(case.model, case.split, again=True)
    complaints, first, last = compare(case, record, reference)
    told = (f"largest difference {last:.3f}" if case.lossy else f"relative difference {first:.1e} at the first step, {last:.1e} at the last")
    return complaints + check_ledgers(record), f"{told}; {seconds:.1f} s"


def main():
    arguments = parse_arguments(__doc__.splitlines()[0])
    groups = GROUPS if FULL else CHOSEN
    cases = [case for group in arguments.group or groups for case in groups[group]]
    with tempfile.TemporaryDirectory(prefix="same_loss-") as folder:
        text = pathlib.Path(folder) / "counting.txt"
        write_counting_text(text)
        runs = Runs(Trainer(arguments.binary, arguments.mpirun, folder), text)
        return report(arguments, [(case.name(), functools.partial(check_case, runs, case)) for case in cases], "cases")


if __name__ == "__main__":
    sys.exit(main())

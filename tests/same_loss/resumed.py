"""What a run takes over of a checkpoint and what its own input says: changed keys, other grids' records, fresh starts, adapters on a base.

Checks are functions of a Lab (resume.py); each returns its complaints and a remark, and its first line says what it holds.
"""
import re
import shutil

from trainer import numpy, read_record, show

SAVING = "checkpoint.interval=2 checkpoint.keep=0 train.steps=6"


def refused(lab, model, split, name, changes, *words):
    """Complaints unless the run ends with exit 2 and a message that has all the words, and its folder is as it was."""
    before = sorted(str(path) for path in (lab.folder / name).rglob("*"))
    result = lab.train(model, split, name, changes)
    complaints = [] if result.exit_code == 2 else [f"{changes}: exit 2 was due\n{show(result)}"]
    complaints += [f"{changes}: not said: {word}\n{result.stderr}" for word in words if not re.search(word, result.stderr)]
    said = [line for line in result.stderr.splitlines() if line.startswith("quadrille:") and "warning" not in line]
    if len(said) != 1:
        complaints.append(f"{changes}: said {said}; one line for the job was due")
    after = sorted(str(path) for path in (lab.folder / name).rglob("*"))
    return complaints + ([f"{changes}: the folder changed: {before}, {after}"] if before != after else [])


def new_values_win(lab):
    """43: of the new input are the learning rate and its schedule, decay, batch, seed and data, from the next step on; each difference is printed."""
    lab.record("gpt", "dp2", "run", SAVING, fresh=True)
    resume = f"{SAVING} checkpoint.resume={lab.step('run', 2)}"
    plain, _ = lab.record("gpt", "dp2", "again", resume, fresh=True)
    complaints = []
    for change, was in (("optimizer.lr=2e-3", "0.001"), ("optimizer.weight_decay=0.5", "0.1"), ("train.seed=7", "1234"),
                        ("train.clip_grad=0.25", "1"), (f"data.train=[{lab.folder}/short.txt]", "counting.txt"),
                        ("optimizer.type=sgd", "adamw"), ("model.hidden_dropout=0.1", "0")):
        record, stdout = lab.record("gpt", "dp2", "again", f"{resume} {change}", fresh=True)
        key = change.split("=")[0]
        lines = [line for line in stdout.splitlines() if line.startswith(f"resume: {key} is ")]
        if len(lines) != 1 or was not in lines[0]:
            complaints.append(f"{change}: the difference is told as {lines}\n{stdout}")
        if numpy.array_equal(record["steps/loss"], plain["steps/loss"]):
            complaints.append(f"{change} changes nothing")
        first_data = key in ("data.train", "train.seed", "model.hidden_dropout")
        if not first_data and record["steps/loss"][0] != plain["steps/loss"][0]:
            complaints.append(f"{change}: the next loss is {record['steps/loss'][0]}, the checkpoint's weights give {plain['steps/loss'][0]}")
    schedule = "optimizer.lr_schedule=linear optimizer.warmup_steps=1 optimizer.decay_steps=11 optimizer.lr=1e-2"
    record, _ = lab.record("gpt", "dp2", "again", f"{resume} {schedule}", fresh=True)
    if not numpy.allclose(record["steps/learning_rate"], [1e-2 * (1 - (k - 1) / 10) for k in (3, 4, 5, 6)], rtol=1e-12):
        complaints.append(f"the new schedule gives {record['steps/learning_rate']}")
    return complaints, ""


def another_batch_goes_on_in_the_data(lab):
    """43: with another global batch the data goes on where it was: no sequence is read twice or left out."""
    shape = f"data.train=[{lab.folder}/counting.txt] data.shuffle=true train.steps=4 checkpoint.interval=2 checkpoint.keep=0"
    lab.record("gpt", "", "run", shape, fresh=True)
    straight, _ = lab.record("gpt", "", "half", f"{shape} train.global_batch_size=4 train.steps=8", fresh=True)
    record, _ = lab.record("gpt", "", "again", f"{shape} train.global_batch_size=4 train.steps=6 checkpoint.resume={lab.step('run', 2)}", fresh=True)
    ours, theirs = record["steps/data_hash"], straight["steps/data_hash"][4:8]  # two steps of 8 are four of 4
    return [] if numpy.array_equal(ours, theirs) else [f"hashes {ours}, straight on {theirs}"], ""


def another_model(lab):
    """43: width, layers, vocabulary, heads and kind of the model must match: exit 2 with both values."""
    lab.record("gpt", "dp2", "run", SAVING, fresh=True)
    complaints = []
    for change, key, was, now in (("model.hidden_size=128", "model.hidden_size", 64, 128), ("model.num_layers=5", "model.num_layers", 4, 5),
                                  ("model.vocab_size=300", "model.vocab_size", 256, 300), ("model.bias=false", "model.bias", "true", "false"),
                                  ("model.seq_length=16", "model.seq_length", 32, 16),
                                  ("model.activation=swiglu", "model.activation", "gelu", "swiglu"),
                                  ("model.num_attention_heads=4", "model.num_attention_heads", 8, 4)):
        words = (f"{key} is {was} there and {now} in this input", "step-00000006", "another model")
        complaints += refused(lab, "gpt", "dp2", "run", f"{SAVING} {change}", *words)
        complaints += refused(lab, "gpt", "dp2", "new", f"{SAVING} {change} checkpoint.resume={lab.folder / 'run/checkpoints'}", *words[:1])
    complaints += refused(lab, "gpt", "dp2", "run", "train.steps=5", "of step 6", "train.steps is 5")
    return complaints, ""


def found_or_not(lab):
    """47: a path that is missing or empty is refused, auto begins afresh and says so; nothing is written over unasked."""
    shutil.rmtree(lab.folder / "run", ignore_errors=True)
    complaints = refused(lab, "gpt", "dp2", "run", "checkpoint.resume=./missing", "missing")
    (lab.folder / "empty").mkdir()
    complaints += refused(lab, "gpt", "dp2", "run", f"checkpoint.resume={lab.folder / 'empty'}", "empty")
    _, stdout = lab.record("gpt", "dp2", "run", SAVING)
    complaints += [] if "begins afresh" in stdout else [f"auto does not say that it begins afresh\n{stdout}"]
    losses = read_record(lab.folder / "run")["steps/loss"]
    record, stdout = lab.record("gpt", "dp2", "run", SAVING)  # all is done: the same command again adds nothing
    if not numpy.array_equal(record["steps/loss"], losses) or not record["attributes"]["complete"] or "after step 6 of 6" not in stdout:
        complaints.append(f"a complete run, again: {record['steps/loss']}, {record['attributes']}\n{stdout}")
    record, _ = lab.record("gpt", "dp2", "run", SAVING.replace("steps=6", "steps=8"))
    if record["steps/step"].tolist() != list(range(1, 9)) or not numpy.array_equal(record["steps/loss"][:6], losses):
        complaints.append(f"two steps more: {record['steps/step']}, {record['steps/loss']}")
    complaints += refused(lab, "gpt", "dp2", "run", f"{SAVING} checkpoint.resume=none", "step-00000008", "overwrite")
    lab.record("gpt", "dp2", "other", SAVING)
    foreign = f"{SAVING} train.steps=9 checkpoint.resume={lab.folder / 'run/checkpoints'}"
    complaints += refused(lab, "gpt", "dp2", "other", foreign, "other", "overwrite")
    # With overwrite its checkpoints are gone before the new run could be taken for the old one.
    record, _ = lab.record("gpt", "dp2", "run", "train.steps=3 checkpoint.interval=2 checkpoint.resume=none output.overwrite=true")
    left = sorted(path.name for path in (lab.folder / "run/checkpoints").iterdir())
    if left != ["step-00000002", "step-00000003"] or len(record["steps/step"]) != 3:
        complaints.append(f"after an overwrite: {left}, {record['steps/step']}")
    return complaints, ""


def back_to_an_earlier_step(lab):
    """Going back drops the record's later rows and puts later checkpoints aside, so that auto never takes the branch that was left."""
    lab.record("gpt", "", "run", SAVING, fresh=True)
    result = lab.train("gpt", "", "run", f"checkpoint.interval=0 train.steps=3 checkpoint.resume={lab.step('run', 2)}/")
    names = sorted(path.name for path in (lab.folder / "run/checkpoints").iterdir())
    complaints = [] if result.exit_code == 0 else [show(result)]
    if names != ["former-step-00000004", "former-step-00000006", "step-00000002"] or "former-step-00000006" not in result.stderr:
        complaints.append(f"the folder holds {names}\n{result.stderr}")
    if read_record(result.output)["steps/step"].tolist() != [1, 2, 3]:
        complaints.append(f"rows {read_record(result.output)['steps/step']}")
    _, stdout = lab.record("gpt", "", "run", SAVING)
    return complaints + ([] if "after step 2 of 6" in stdout else [f"auto went on elsewhere\n{stdout}"]), ""


def records_of_other_grids(lab):
    """On another grid run-2.h5 continues run.h5; on its own grid again, it goes on itself; from elsewhere, run.h5 names the checkpoint."""
    first, _ = lab.record("gpt", "dp2", "run", SAVING, fresh=True)
    again, _ = lab.record("gpt", "tp2", "run", f"{SAVING} checkpoint.resume={lab.step('run', 4)}", record="run-2.h5")
    kept = read_record(lab.folder / "run")
    complaints = []
    if again["attributes"]["continues"] != "run.h5" or again["attributes"]["continues_after"] != 4 or again["steps/step"].tolist() != [5, 6]:
        complaints.append(f"run-2.h5: {again['attributes']}, {again['steps/step']}")
    if not numpy.array_equal(kept["steps/loss"], first["steps/loss"]):
        complaints.append("run.h5 has changed")
    third, _ = lab.record("gpt", "tp2", "run", SAVING.replace("steps=6", "steps=7"), record="run-2.h5")
    if third["steps/step"].tolist() != [5, 6, 7]:
        complaints.append(f"run-2.h5 again: {third['steps/step']}")
    inspected = lab.trainer.run(["inspect", lab.folder / "run"])
    if not re.search(r"run-2\.h5: .*\n(.*\n)*.* continues +run\.h5, after step 4\n", inspected.stdout):
        complaints.append(f"inspect tells of another record\n{show(inspected)}")
    new, _ = lab.record("gpt", "tp2", "new", f"{SAVING} checkpoint.resume={lab.folder / 'run/checkpoints'} train.steps=8")
    if not new["attributes"]["continues"].endswith("run/checkpoints/step-00000007") or new["steps/step"].tolist() != [8]:
        complaints.append(f"elsewhere: {new['attributes']}, {new['steps/step']}")
    return complaints, ""


def adapters_on_a_base(lab):
    """New adapters on a base take its weights and begin anew; a base is not gone on with in its own folder, nor adapters without theirs."""
    base, _ = lab.record("gpt", "dp2", "run", SAVING, fresh=True)
    complaints = []
    for split in ("", "tp2", "dp2 zero3", "pp2"):
        record, stdout = lab.record("lora", split, "tuned", f"{SAVING} checkpoint.resume={lab.step('run', 6)}", fresh=True)
        if record["steps/step"].tolist() != [1, 2, 3, 4, 5, 6] or not record["steps/loss"][0] < base["steps/loss"][2]:
            complaints.append(f"{split}: steps {record['steps/step']}, losses {record['steps/loss']}; the base began with {base['steps/loss']}")
        if "begin anew" not in stdout:
            complaints.append(f"{split}: what begins anew is not said\n{stdout}")
        resumed, stdout = lab.record("lora", split, "tuned", f"{SAVING} checkpoint.resume={lab.step('tuned', 2)}")
        if not numpy.array_equal(resumed["steps/loss"], record["steps/loss"]):
            complaints.append(f"{split}: adapters gone on with: {resumed['steps/loss']}, straight {record['steps/loss']}")
    complaints += refused(lab, "lora", "dp2", "run", SAVING, "has no adapters", "another output.directory")
    complaints += refused(lab, "gpt", "dp2", "tuned", SAVING, "model.lora.rank is 4 there and null in this input")
    complaints += refused(lab, "lora", "dp2", "tuned", f"{SAVING} model.lora.rank=2", "model.lora.rank is 4 there and 2 in this input")
    return complaints, ""


def queued_again(lab):
    """A run that began with another's checkpoint goes on from its own by the same command: adapters on a base, and a run that branches off."""
    lab.record("gpt", "dp2", "run", SAVING, fresh=True)
    complaints = []
    for model, first in (("lora", 1), ("gpt", 5)):
        command = f"checkpoint.interval=2 checkpoint.keep=0 train.steps=8 optimizer.lr=5e-4 checkpoint.resume={lab.step('run', 4)}"
        straight, _ = lab.record(model, "dp2", "tuned", command, fresh=True)
        for more in ("", " output.overwrite=true"):
            lab.record(model, "dp2", "tuned", command.replace("steps=8", "steps=6") + more, fresh=True)
            record, stdout = lab.record(model, "dp2", "tuned", command + more)
            if record["steps/step"].tolist() != list(range(first, 9)) or not numpy.array_equal(record["steps/loss"], straight["steps/loss"]):
                complaints.append(f"{model}{more}: steps {record['steps/step']}, losses {record['steps/loss']}, straight {straight['steps/loss']}")
            if "has saved in" not in stdout or "after step 6 of 8" not in stdout:
                complaints.append(f"{model}{more}: not said what is gone on with\n{stdout}")
        # All is done: nothing to add, or, where that is asked, another run in its place.
        record, _ = lab.record(model, "dp2", "tuned", command)
        again, _ = lab.record(model, "dp2", "tuned", f"{command} output.overwrite=true")
        if not numpy.array_equal(record["steps/loss"], straight["steps/loss"]) or not numpy.array_equal(again["steps/loss"], straight["steps/loss"]):
            complaints.append(f"{model}: once done, {record['steps/loss']}; overwritten {again['steps/loss']}")
        complaints += refused(lab, model, "dp2", "tuned", command.replace("00000004", "00000002"), "which this run does not go on from", "overwrite")
    return complaints, ""


def base_that_is_gone(lab):
    """A run that has saved goes on by the same command also where what it began with is there no more; one that has not is refused."""
    lab.record("gpt", "dp2", "run", SAVING, fresh=True)
    command = f"checkpoint.interval=2 checkpoint.keep=0 train.steps=6 checkpoint.resume={lab.step('run', 4)}"
    lab.record("gpt", "dp2", "tuned", command, fresh=True)
    shutil.rmtree(lab.folder / "run")
    shutil.rmtree(lab.folder / "never", ignore_errors=True)
    _, stdout = lab.record("gpt", "dp2", "tuned", command.replace("steps=6", "steps=8"))
    complaints = [] if "after step 6 of 8" in stdout else [f"not said what is gone on with\n{stdout}"]
    return complaints + refused(lab, "gpt", "dp2", "never", command, "step-00000004"), ""


def damaged_ones_are_kept(lab):
    """A run that began with another's checkpoint, and whose own are all damaged, begins once more; the damaged are told of and kept."""
    lab.record("gpt", "dp2", "run", SAVING, fresh=True)
    command = f"checkpoint.interval=2 checkpoint.keep=1 train.steps=6 checkpoint.resume={lab.step('run', 4)}"
    lab.record("gpt", "dp2", "tuned", command, fresh=True)
    (lab.step("tuned", 6) / "checkpoint.h5").unlink()
    complaints = refused(lab, "gpt", "dp2", "tuned", command, "which this run does not go on from", "overwrite=true to put it aside")
    result = lab.train("gpt", "dp2", "tuned", f"{command} output.overwrite=true")
    names = sorted(path.name for path in (lab.folder / "tuned/checkpoints").iterdir())
    if result.exit_code != 0 or names != ["former-step-00000006", "step-00000006"] or "passed over" not in result.stderr:
        complaints.append(f"the folder holds {names}\n{show(result)}")
    return complaints, ""


def another_optimizer(lab):
    """AdamW after SGD begins its moments at zero, corrected as such, and says so."""
    lab.record("sgd", "dp2", "run", SAVING, fresh=True)
    adam = "optimizer.type=adamw optimizer.lr=1e-3"
    record, stdout = lab.record("sgd", "dp2", "again", f"{SAVING} {adam} checkpoint.resume={lab.step('run', 2)}", fresh=True)
    complaints = [] if "moments begin at zero" in stdout else [f"not said\n{stdout}"]
    return complaints + ([] if numpy.isfinite(record["steps/loss"]).all() else [f"losses {record['steps/loss']}"]), ""


CHECKS = [(check.__name__, check) for check in (
    new_values_win, another_batch_goes_on_in_the_data, another_model, found_or_not, back_to_an_earlier_step, records_of_other_grids,
    adapters_on_a_base, queued_again, base_that_is_gone, damaged_ones_are_kept, another_optimizer)]

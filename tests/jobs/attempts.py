"""attempt.sh with a trainer that does as it is told: states, what follows which exit code, locks, requeueing. And the job scripts that use it."""
import fcntl
import json
import os
import re
import signal
import subprocess

import standing
from trainer import wait_for

from scripts import INPUT, JOBSCRIPTS, checkout, state, write

# Each line of `script` is an attempt: the step that it saves, its exit code, what its record then says, and what it does meanwhile.
FAKE = """#!/usr/bin/env bash
cd {folder}
case $1 in
    plan) printf 'checkpoint:\\n  directory: "{folder}/output/checkpoints"\\noutput:\\n  directory: "{folder}/output"\\n' ;;
    inspect) cat output/record ;;
    train)
        echo "$*" >>asked
        IFS='|' read -r step code record meanwhile <script
        sed -i 1d script
        mkdir -p "output/checkpoints/step-$step"
        echo "$record" >output/record
        touch output/run.h5
        eval "$meanwhile"
        echo "quadrille: stopped after step $step"
        exit "$code" ;;
esac
"""


class Fake:
    """A run's folder with that trainer, and tools of Slurm that note what they are asked for."""

    def __init__(self, trainer, *attempts):
        self.folder = trainer.folder / "run"
        subprocess.run(["rm", "-rf", self.folder], check=True)
        (self.folder / "tools").mkdir(parents=True)
        quoted = str(self.folder).replace(" ", "\\ ")
        self.write("quadrille", FAKE.replace("cd {folder}", f"cd {quoted}").replace("{folder}", str(self.folder)))
        self.write("tools/scontrol", f'#!/bin/sh\necho "$@" >>{quoted}/scontrol.log\n')
        (self.folder / "script").write_text("".join(attempt + "\n" for attempt in attempts))
        (self.folder / "input.yaml").touch()
        self.environment = trainer.environment | {"PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}"}

    def write(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def start(self, *options, environment=()):
        command = [self.folder / "quadrille", "train", self.folder / "input.yaml"]
        words = [JOBSCRIPTS / "attempt.sh", *options, "--run", self.folder, "2", "env", "--", *command]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=self.environment | dict(environment))

    def end(self, *options, environment=()):
        """The exit code, state.json, what the trainer was asked, and what scontrol."""
        code = self.start(*options, environment=environment).wait(200)
        read = lambda name: (self.folder / name).read_text().splitlines() if (self.folder / name).exists() else []  # noqa: E731
        return code, state(self.folder), read("asked"), read("scontrol.log")


def check(what, found, code, name, attempts, requeued=()):
    """Complaints unless an attempt ended so."""
    left = {key: found[1] and found[1][key] for key in ("state", "attempts", "exit_code")}
    if found[0] == code and left["state"] == name and left["attempts"] == attempts and found[3] == list(requeued):
        return []
    return [f"{what}: exit {found[0]}, {found[1]}, scontrol was asked {found[3]}; due: exit {code}, {name}, {attempts} attempts, {list(requeued)}"]


def codes(trainer):
    """What follows which end, outside of Slurm and in a job, and in an array's."""
    job, array = {"SLURM_JOB_ID": "4711"}, {"SLURM_JOB_ID": "4711", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "3"}
    complaints = []
    for what, script, environment, options, due in (
            ("done", ["9|0"], {}, [], (0, "done", 1)),
            ("failed", ["9|6"], job, [], (6, "failed", 1)),
            ("gone on with at once", ["3|75", "6|75", "9|0"], {}, [], (0, "done", 3)),
            ("not twice at one step", ["3|75", "3|75", "9|0"], {}, [], (75, "stopped", 2)),
            ("nor back", ["10|75", "9|75||rm -r output/checkpoints/step-10", "12|0"], {}, [], (75, "stopped", 2)),
            ("nor with nothing left", ["10|75", "9|75||rm -r output/checkpoints/step-*", "12|0"], {}, [], (75, "stopped", 2)),
            ("queued again", ["3|75", "9|0"], job, [], (75, "stopped", 1, ["requeue 4711"])),
            ("one job of an array", ["3|75", "9|0"], array, [], (75, "stopped", 1, ["requeue 4711_3"])),
            ("not a job of its own", ["3|75", "9|0"], job, ["--here"], (0, "done", 2)),
            ("killed by the launcher after all had saved", ["3|137|stopped, exit code 75", "9|0"], job, [], (75, "stopped", 1, ["requeue 4711"])),
            ("killed", ["3|137|unfinished, exit code -1", "9|0"], job, [], (137, "failed", 1))):
        complaints += check(what, Fake(trainer, *script).end(*options, environment=environment), *due)
    return complaints


def words(trainer):
    """The time limit is the trainer's outside of Slurm only; a failure's reason is the trainer's last word of the attempt; texts are JSON."""
    complaints = []
    for environment, due in (({}, " train.time_limit=60"), ({"SLURM_JOB_ID": "1"}, "")):
        fake = Fake(trainer, '9|6||echo \'quadrille: "a\\b"\'')
        found = fake.end("--time", "60", environment=environment)
        if found[2] != [f"train {fake.folder / 'input.yaml'}{due}"]:
            complaints.append(f"{environment}: the trainer was asked {found[2]}")
        if found[1]["reason"] != "quadrille: stopped after step 9":
            complaints.append(f"the reason is {found[1]['reason']}")
    fake = Fake(trainer, "9|6||echo 'quadrille: \"a\\b\"'; exit 6")
    complaints += [] if fake.end()[1]["reason"] == 'quadrille: "a\\b"' else [f"{state(fake.folder)}"]
    fake = Fake(trainer, "9|6||exit 6")
    fake.write("log.txt", "quadrille: an earlier attempt's\n")
    return complaints + ([] if fake.end()[1]["reason"] is None else [f"{state(fake.folder)}"])


def asked_to_stop(trainer):
    """A signal to the script reaches the trainer as SIGUSR1, and ends the going on; SIGUSR1 in a job does not."""
    complaints = []
    meanwhile = "trap 'echo got >got' USR1; touch ready; while [[ ! -e got ]]; do sleep 0.05; done"
    for sent, environment, requeued in ((signal.SIGTERM, {}, []), (signal.SIGINT, {}, []), (signal.SIGUSR1, {}, []),
                                        (signal.SIGTERM, {"SLURM_JOB_ID": "5"}, []), (signal.SIGUSR1, {"SLURM_JOB_ID": "5"}, ["requeue 5"])):
        fake = Fake(trainer, f"3|75||{meanwhile}", "9|0")
        process = fake.start(environment=environment)
        if not wait_for((fake.folder / "ready").exists, 200):
            return [f"it has not begun\n{process.communicate(timeout=5)[0]}"]
        running = state(fake.folder)
        os.kill(process.pid, sent)
        code = process.wait(200)
        asked = (fake.folder / "scontrol.log").read_text().splitlines() if (fake.folder / "scontrol.log").exists() else []
        complaints += check(sent.name, (code, state(fake.folder), [], asked), 75, "stopped", 1, requeued)
        if (running["state"], running["exit_code"], running["end"]) != ("running", None, None):
            complaints.append(f"while it ran: {running}")
    return complaints


def one_at_a_time(trainer):
    """A run that another attempt has is left alone, and one that is done; one whose attempt was killed when it was done is done."""
    fake = Fake(trainer, "9|0")
    with open(fake.folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = fake.end()
    complaints = [] if found[:2] == (11, None) and not found[2] else [f"while it was locked: {found}"]
    complaints += check("free", fake.end(), 0, "done", 1)
    again = fake.end()
    complaints += check("again", again, 0, "done", 1) + ([] if len(again[2]) == 1 else ["a run that was done has run again"])
    begun = state(fake.folder) | {"state": "running", "exit_code": None, "end": None}
    write(fake.folder / "state.json", begun)
    (fake.folder / "output/record").write_text("120 of 120, complete, exit code 0\n")
    complaints += check("killed when done", fake.end(), 0, "done", 1)
    write(fake.folder / "state.json", begun)
    (fake.folder / "output/record").write_text("120 of 200 recorded, not complete, exit code 0\n")
    (fake.folder / "script").write_text("200|0\n")
    complaints += check("killed before it was done", fake.end(), 0, "done", 2)
    fake = Fake(trainer, "3|6", "9|0")
    complaints += check("failed", fake.end("--after", "0"), 6, "failed", 1)
    return complaints + check("another was first", fake.end("--after", "0"), 11, "failed", 1) + check("next", fake.end("--after", "1"), 0, "done", 2)


def without_locks(trainer):
    """Where nobody can tell whether a run still runs, one that says so is left alone, but by the job that it says it is of."""
    complaints = []
    for environment, due in (({}, (11, "running", 1)), ({"SLURM_JOB_ID": "4"}, (11, "running", 1)), ({"SLURM_JOB_ID": "5"}, (0, "done", 2))):
        fake = Fake(trainer, "9|0")
        fake.write("tools/flock", "#!/bin/sh\nexit 69\n")
        begun = {"state": "running", "exit_code": None, "attempts": 1, "begin": "2026-01-31T12:00:00Z", "end": None, "seconds": 0, "host": "alpha",
                 "slurm_job_id": "5", "reason": None}
        write(fake.folder / "state.json", begun)
        (fake.folder / "state.json").write_text((fake.folder / "state.json").read_text() + "\n")
        complaints += check(f"{environment}", fake.end(environment=environment), *due)
        (fake.folder / "state.json").unlink()
        complaints += check("removed", fake.end(), 0, "done", 1) if due[0] else []
    return complaints


def whole_states(trainer):
    """state.json is whole at every instant, and its times are of the attempts."""
    fake = Fake(trainer, *(f"{step}|75" for step in range(100, 130)), "200|0")
    process, seen = fake.start(), set()
    while process.poll() is None:
        try:
            seen.add(json.loads((fake.folder / "state.json").read_text())["state"])
        except FileNotFoundError:
            pass
    last = state(fake.folder)
    good = last["state"] == "done" and last["attempts"] == 31 and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", last["end"])
    return [] if good and seen <= {"running", "stopped", "done"} else [f"{last}, seen {seen}"]


def unwritable_states(trainer):
    """A run whose state.json cannot be written ends as its trainer did, and is neither begun nor queued again; it is not begun where that is so
    from the start."""
    complaints = []
    full, job = "mkdir state.json.new", {"SLURM_JOB_ID": "4711"}
    for what, script, environment, code in (("done", [f"9|0||{full}", "9|0"], {}, 0), ("failed", [f"9|6||{full}", "9|0"], {}, 6),
                                            ("stopped", [f"3|75||{full}", "9|0"], {}, 75), ("in a job", [f"3|75||{full}", "9|0"], job, 75),
                                            ("no further", ["3|75", f"3|75||{full}", "9|0"], {}, 75)):
        fake = Fake(trainer, *script)
        found, log = fake.end(environment=environment), (fake.folder / "log.txt").read_text()
        complaints += check(what, found, code, "running", len(script) - 1)
        if log.count(f"state.json cannot be written: the run ended with exit code {code} and is not begun again\n") != 1:
            complaints.append(f"{what}: {log}")
    fake = Fake(trainer, "9|0")
    (fake.folder / "state.json.new").mkdir()
    found = fake.end()
    return complaints + ([] if (found[0], found[1], found[2]) == (5, None, []) else [f"from the start: {found}"])


def damaged_states(trainer):
    """A state.json that a power cut has emptied or cut costs a sentence: the record tells of a run that is done, and the checkpoints of others."""
    whole = json.dumps({"state": "stopped", "exit_code": 75, "attempts": 4, "begin": "2026-01-31T12:00:00Z", "end": None, "seconds": 9, "host": "a",
                        "slurm_job_id": None, "reason": None}, indent=1)
    complaints = []
    for text, attempts in (("", 0), ("{", 0), ("null", 0), ("[]", 0), ('{"state": "done"}', 0), ("\0" * 200, 0), (whole[:120], 4),
                           (whole.replace('"stopped"', '"dnoe"'), 4)):
        for record, code, name, more in (("120 of 120, complete, exit code 0", 0, "done", 0), ("60 of 120, unfinished, exit code -1", 0, "done", 1)):
            fake = Fake(trainer, "9|0")
            (fake.folder / "output").mkdir()
            fake.write("output/record", record)
            fake.write("state.json", text)
            known = standing.state_of(fake.folder)
            found, log = fake.end("--after", str(known["attempts"])), (fake.folder / "log.txt").read_text()
            complaints += check(f"{text!r}, {record}", found, code, name, attempts + more)
            if len(found[2]) != more or known["state"] != "killed" or "state.json is damaged" not in known["reason"] or log.count("is damaged") != 1:
                complaints.append(f"{text!r}, {record}: {known}, asked {found[2]}\n{log}")
    fake = Fake(trainer, "9|0")
    fake.write("state.json", whole + "\n")
    return complaints + check("whole", fake.end(), 0, "done", 5)


def job_scripts(trainer):
    """The scripts to copy: what they ask Slurm for, srun with what it needs, and a requeue after exit code 75, only then."""
    complaints = []
    for name in ("cpu.slurm", "gpu.slurm"):
        script = (JOBSCRIPTS / name).read_text()
        flags = ("--signal=USR1@", "--requeue", "--ntasks-per-node", "--cpus-per-task", "--time", "--open-mode=append")
        complaints += [f"{name} lacks {flag}" for flag in flags if f"#SBATCH {flag}" not in script]
        folder = checkout(trainer, trainer.folder / name)
        (folder / "tools").mkdir()
        write(folder / "run.yaml", INPUT | {"data": {"format": "text", "train": [str(trainer.folder / "counting.txt")]}})
        shift = "while [[ $1 == -* ]]; do shift; done"
        ran = f'echo "$SLURM_MPI_TYPE $@" >>srun.log; {shift}; exec "$@"'
        for tool, body in (("srun", ran), ("scontrol", 'echo "$@" >scontrol.log'), ("squeue", "true")):
            (folder / "tools" / tool).write_text(f"#!/usr/bin/env bash\n{body}\n")
            (folder / "tools" / tool).chmod(0o755)
        variables = trainer.environment | {"PATH": f"{folder / 'tools'}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711", "SLURM_NTASKS": "1"}
        variables.pop("MPIRUN", None)
        for change, code, requeued in (("train.time_limit=15 train.steps=1000000", 75, "requeue 4711\n"), ("train.time_limit=1e-3", 2, ""),
                                       ("train.steps=2 output.overwrite=true checkpoint.resume=none", 0, ""), ("train.steps=0", 2, "")):
            for log in ("scontrol.log", "srun.log"):
                (folder / log).unlink(missing_ok=True)
            done = subprocess.run([JOBSCRIPTS / name, "run.yaml", *change.split(), "output.directory=out"], env=variables, cwd=folder,
                                  capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)
            asked = (folder / "scontrol.log").read_text() if (folder / "scontrol.log").exists() else ""
            ran = (folder / "srun.log").read_text()
            if done.returncode != code or asked != requeued or "pmix --kill-on-bad-exit=1" not in ran or ran.count("--cpu-bind") != 2:
                complaints.append(f"{name}, {change}: exit {done.returncode}, scontrol was asked '{asked}'\n{done.stdout}\n{done.stderr}")
    return complaints


CHECKS = [(function.__name__, function) for function in (codes, words, asked_to_stop, one_at_a_time, without_locks, whole_states,
                                                       unwritable_states, damaged_states, job_scripts)]

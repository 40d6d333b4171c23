"""In a real Slurm: an array of four points, one of which is stopped by a signal, queued again and done; a job of submit.py."""
import functools
import importlib.util
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile

from trainer import read_record, wait_for

sys.path.append(str(pathlib.Path(__file__).parents[1] / "report"))
import browser  # noqa: E402
import cluster  # noqa: E402
from scripts import INPUT, JOBSCRIPTS, LONG, STEPS, expect, is_training, ranks_of, state, submit, sweep, write  # noqa: E402
from sweeping import folders  # noqa: E402

MACHINE = {"scheduler": "slurm", "cores": cluster.CORES, "memory": "2GiB", "ranks_per_node": 2, "time": "00:10:00", "signal": 30}


def in_a_cluster(check):
    """`check(trainer, cluster)` in a Slurm of its own, whose commands the trainer's environment finds."""
    @functools.wraps(check)
    def checked(trainer):
        reason = cluster.why_not()
        if reason:
            return f"skipped: {reason}"
        with tempfile.TemporaryDirectory(prefix="slurm-") as folder, cluster.Cluster(folder) as slurm:
            trainer.environment |= slurm.environment
            found = check(trainer, slurm)
            return found + [slurm.words()] * bool(found)
    return checked


def machine(trainer, slurm):
    """Open MPI's ranks find each other by PMIx, others' by PMI-2; where srun has neither for this trainer, by the trainer's own mpirun."""
    mpirun = trainer.environment.get("MPIRUN", "")
    plugin = "pmi2" if "mpich" in mpirun else "pmix"
    there = slurm.ask("srun", "--mpi=list")
    if plugin in there.stdout + there.stderr:
        launch = f"srun --mpi={plugin} --kill-on-bad-exit=1 --nodes={{nodes}} --ntasks={{ranks}} --cpus-per-task={{threads}}"
    else:
        launch = f"env {shlex.quote('MPIRUN=' + (mpirun or 'mpirun'))} {shlex.quote(str(JOBSCRIPTS / 'launch.sh'))} {{ranks}}"
    return write(trainer.folder / "m.yaml", MACHINE | {"launch": launch})


def array(trainer, slurm):
    """sweep.py queues four points as an array; one is stopped by a signal, queued again by its script, and done; none has run twice."""
    write(trainer.folder / "run.yaml", INPUT)
    machine(trainer, slurm)
    fixed = dict(LONG)
    steps = fixed.pop("train.steps")
    write(trainer.folder / "s.yaml", {"base": "run.yaml", "ranks": 2, "machine": "m.yaml", "fixed": fixed,
                                      "vary": {"train.steps": [2, steps, 3, 4]}})
    complaints = expect("queueing", sweep(trainer, "s.yaml"), 0, "queued as array", "points 0-3, on 1 node with 2 ranks each")
    complaints += expect("again", sweep(trainer, "s.yaml"), 0, "nothing to queue: 4 points are in the queue")
    if complaints:
        return complaints
    victim = folders(trainer)[1]
    if not wait_for(lambda: is_training(victim), 250):
        return ["the point has not begun"]
    os.kill(ranks_of(victim)[0], signal.SIGUSR1)
    done = lambda: all((state(folder) or {}).get("state") == "done" for folder in folders(trainer))  # noqa: E731
    if not wait_for(done, 250):
        return [f"{[state(folder) for folder in folders(trainer)]}\n{slurm.ask('squeue').stdout}\n{(victim / 'log.txt').read_text()[-2000:]}"]
    attempts = [state(folder)["attempts"] for folder in folders(trainer)]
    rows = [read_record(folder / "output")["steps/step"].tolist() for folder in folders(trainer)]
    if attempts != [1, 2, 1, 1] or rows != [list(range(1, last + 1)) for last in (2, steps, 3, 4)]:
        complaints.append(f"attempts {attempts}, steps {[len(row) for row in rows]}")
    job = read_record(victim / "output")["environment"]
    if not job.get("slurm_job_id"):
        complaints.append(f"the record knows no job: {job}")
    complaints += [f"{victim}: {word} was not said" for word in ("SIGUSR1", "goes on after step") if word not in (victim / "log.txt").read_text()]
    return complaints + expect("done", sweep(trainer, "s.yaml", "--status"), 0, "4 done") + report_of(trainer.folder / "runs/s-sweep")


def report_of(directory):
    """The report of the sweep that has just run, as postproc/report.py writes it and as a browser shows it."""
    if not importlib.util.find_spec("matplotlib"):
        return []  # no report can be written here
    command = [sys.executable, JOBSCRIPTS.parent / "postproc/report.py", directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
    if done.returncode or done.stderr:
        return [f"report.py: exit {done.returncode}\n{done.stdout}{done.stderr}"]
    return browser.complaints_about(directory / "report.html", {"points", "rates", "eaten", "by-train-steps", "transfers"})[0]


def queued_again(trainer, slurm):
    """submit.py: a job that is asked to stop, as before its end, saves, is queued again and done; while it is queued it is not queued twice."""
    write(trainer.folder / "run.yaml", INPUT)
    machine(trainer, slurm)
    directory = trainer.folder / "runs/a job"
    words = ["--machine", "m.yaml", "--directory", directory, *(f"{key}={value}" for key, value in LONG.items())]
    complaints = expect("queueing", submit(trainer, "run.yaml", *words), 0, "queued as job")
    complaints += expect("again", submit(trainer, directory), 11, "is in the queue already")
    if complaints or not wait_for(lambda: is_training(directory), 250):
        return complaints or ["it has not begun"]
    number = slurm.ask("squeue", "--noheader", "--format=%A").stdout.strip()
    slurm.ask("scancel", "--signal=USR1", number)  # as Slurm does before the end of a job's time
    if not wait_for(lambda: (state(directory) or {}).get("state") == "done", 250):
        return [f"{state(directory)}\n{slurm.ask('scontrol', 'show', 'job', number).stdout}\n{(directory / 'log.txt').read_text()[-2000:]}"]
    record = read_record(directory / "output")
    if state(directory)["attempts"] < 2 or record["steps/step"].tolist() != list(range(1, STEPS + 1)):
        complaints.append(f"{state(directory)}, {len(record['steps/step'])} steps")
    return complaints


CHECKS = [(check.__name__, in_a_cluster(check)) for check in (array, queued_again)]

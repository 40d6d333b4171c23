"""In a real Slurm: an array of four points, one of which is stopped by a signal, queued again and done; jobs that are told to stop, that Slurm tells
of the end of their time, and that are cancelled."""
import concurrent.futures
import functools
import importlib.util
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

from trainer import read_record, wait_for

sys.path.append(str(pathlib.Path(__file__).parents[1] / "report"))
import browser  # noqa: E402
import cluster  # noqa: E402
from scripts import INPUT, JOBSCRIPTS, LONG, STEPS, checkout, expect, is_training, ranks_of, state, submit, sweep, write  # noqa: E402
from sweeping import folders  # noqa: E402

MACHINE = {"scheduler": "slurm", "cores": cluster.CORES // 2, "memory": "2GiB", "ranks_per_node": 2, "time": "00:10:00", "signal": 30}


MOST = 200  # seconds of a check: one that ctest has to kill would leave its Slurm behind


def out_of_time(*_):
    raise RuntimeError(f"it is not over after {MOST} s")


def in_a_cluster(check):
    """`check(trainer, cluster)` in a Slurm of its own, whose commands the trainer's environment finds."""
    @functools.wraps(check)
    def checked(trainer):
        reason = cluster.why_not()
        if reason:
            return f"skipped: {reason}"
        signal.signal(signal.SIGALRM, out_of_time)
        with tempfile.TemporaryDirectory(prefix="slurm-") as folder, cluster.Cluster(folder) as slurm:
            trainer.environment |= slurm.environment
            signal.alarm(MOST)
            found = check(trainer, slurm)
            signal.alarm(0)
            return found + [slurm.words()] * bool(found)
    return checked


def plugin_of(trainer, slurm):
    """By what srun's ranks find each other: Open MPI's by PMIx, others' by PMI-2; None where srun has neither for this trainer."""
    plugin = "pmi2" if "mpich" in trainer.environment.get("MPIRUN", "") else "pmix"
    there = slurm.ask("srun", "--mpi=list")
    return plugin if plugin in there.stdout + there.stderr else None


def machine(trainer, slurm):
    """A machine file whose launch line is srun's, or where srun has no plug-in for this trainer that of its own mpirun."""
    plugin, mpirun = plugin_of(trainer, slurm), trainer.environment.get("MPIRUN", "")
    launch = f"env {shlex.quote('MPIRUN=' + (mpirun or 'mpirun'))} {shlex.quote(str(JOBSCRIPTS / 'launch.sh'))} {{ranks}}"
    if plugin:
        launch = f"srun --mpi={plugin} --kill-on-bad-exit=1 --nodes={{nodes}} --ntasks={{ranks}} --cpus-per-task={{threads}}"
    return write(trainer.folder / "m.yaml", MACHINE | {"launch": launch})


def array(trainer, slurm):
    """sweep.py queues four points as an array, two at once; one is stopped by a signal, queued again by its script, and done; one is cancelled before
    it has begun, and queued by the next call. None has run twice."""
    write(trainer.folder / "run.yaml", INPUT)
    machine(trainer, slurm)
    fixed = dict(LONG)
    steps = fixed.pop("train.steps")
    write(trainer.folder / "s.yaml", {"base": "run.yaml", "ranks": 2, "machine": "m.yaml", "fixed": fixed,
                                      "vary": {"train.steps": [2, steps, 3, 4]}})
    queueing = sweep(trainer, "s.yaml", "--at-once", "2")
    complaints = expect("queueing", queueing, 0, "queued as array", "points 0-3, on 1 node with 2 ranks each")
    complaints += expect("again", sweep(trainer, "s.yaml"), 0, "nothing to queue: 4 points are in the queue")
    if complaints:
        return complaints
    number = jobs_of(trainer.folder / "runs/s-sweep")[0]
    slurm.ask("scancel", f"{number}_3")
    if "ArrayTaskThrottle=2" not in slurm.ask("scontrol", "show", "job", number).stdout:
        complaints.append("more than two run at once")
    victim = folders(trainer)[1]
    if not wait_for(lambda: is_training(victim), MOST):
        return ["the point has not begun"]
    os.kill(ranks_of(victim)[0], signal.SIGUSR1)
    complaints += expect("a cancelled point", sweep(trainer, "s.yaml"), 0, "queued as array", "points 3, on 1 node")
    done = lambda: all((state(folder) or {}).get("state") == "done" for folder in folders(trainer))  # noqa: E731
    if not wait_for(done, MOST):
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


def jobs_of(directory):
    """The numbers of what was submitted."""
    return [job["job_id"] for job in json.loads((directory / "jobs.json").read_text())]


def jobs(trainer, slurm):
    """Beside a job whose time is short one that is told to stop, and then one that is cancelled."""
    write(trainer.folder / "run.yaml", INPUT)
    machine(trainer, slurm)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        limited = begin_limited(trainer, slurm)
        beside = pool.submit(ends_in_time, slurm, *limited) if limited else None
        return queued_again(trainer, slurm) + cancelled(trainer, slurm) + (beside.result() if beside else [])


def begin_limited(trainer, slurm):
    """Queues cpu.slurm for a minute, with more steps than that has time for: (its folder, its number). None where it cannot run here."""
    plugin, folder = plugin_of(trainer, slurm), checkout(trainer, trainer.folder / "by template")
    if not plugin:
        return None
    text = {"data": {"format": "text", "train": [str(trainer.folder / "counting.txt")]}}
    write(folder / "run.yaml", INPUT | text | {"train": INPUT["train"] | {"steps": 1000000}})
    environment = {name: value for name, value in trainer.environment.items() if name != "MPIRUN"} | {"SLURM_MPI_TYPE": plugin}
    options = ["--parsable", "--ntasks-per-node=2", "--cpus-per-task=1", "--time=00:01:00", "--signal=USR1@10", "--output=log.txt"]
    words = ["run.yaml", "output.directory=out", "output.log_interval=100"]
    done = subprocess.run(["sbatch", *options, "jobscripts/cpu.slurm", *words], cwd=folder, env=environment, capture_output=True, text=True,
                          check=False, timeout=60, stdin=subprocess.DEVNULL)
    return folder, done.stdout.strip() or done.stderr


def ends_in_time(slurm, folder, number):
    """Slurm tells the ranks of the end of the job's time, all save, the job is queued again, and the next does the few steps that are then left."""
    words = lambda: (folder / "log.txt").read_text() if (folder / "log.txt").exists() else ""  # noqa: E731
    stopped = lambda: re.search(r"stopped after step (\d+) of 1000000, because of SIGUSR1", words())  # noqa: E731
    if not wait_for(stopped, 100):
        return [f"the job {number} was not told of its end\n{slurm.ask('scontrol', 'show', 'job', number).stdout}\n{words()[-2000:]}"]
    step = int(stopped()[1])
    write(folder / "run.yaml", (folder / "run.yaml").read_text().replace("1000000", str(step + 3)))
    over = lambda: "COMPLETED" in slurm.ask("scontrol", "show", "job", number).stdout  # noqa: E731
    if not wait_for(over, 100):
        return [f"not gone on with\n{slurm.ask('scontrol', 'show', 'job', number).stdout}\n{words()[-2000:]}"]
    record = read_record(folder / "out")
    rows, restarts = record["steps/step"].tolist(), "Restarts=1 " in slurm.ask("scontrol", "show", "job", number).stdout
    return [] if rows == list(range(1, step + 4)) and record["attributes"]["complete"] and restarts else [f"{len(rows)} steps\n{words()[-2000:]}"]


def begun(trainer, name, steps):
    """Queues run.yaml by submit.py and waits until it trains: (its directory, its number, complaints)."""
    directory = trainer.folder / "runs" / name
    options = ["--machine", "m.yaml", "--directory", directory, *(f"{key}={value}" for key, value in (LONG | {"train.steps": steps}).items())]
    complaints = expect("queueing", submit(trainer, "run.yaml", *options), 0, "queued as job")
    complaints += expect("again", submit(trainer, directory), 11, "is in the queue already")
    if complaints:
        return directory, None, complaints
    return directory, jobs_of(directory)[0], [] if wait_for(lambda: is_training(directory), MOST) else ["it has not begun"]


def queued_again(trainer, slurm):
    """submit.py: a job that is asked to stop saves, is queued again and done; while it is queued it is not queued twice."""
    directory, number, complaints = begun(trainer, "a job", STEPS)
    if complaints:
        return complaints
    slurm.ask("scancel", "--signal=USR1", number)
    if not wait_for(lambda: (state(directory) or {}).get("state") == "done", MOST):
        return [f"{state(directory)}\n{slurm.ask('scontrol', 'show', 'job', number).stdout}\n{(directory / 'log.txt').read_text()[-2000:]}"]
    record = read_record(directory / "output")
    if state(directory)["attempts"] < 2 or record["steps/step"].tolist() != list(range(1, STEPS + 1)):
        complaints.append(f"{state(directory)}, {len(record['steps/step'])} steps")
    return complaints


def cancelled(trainer, slurm):
    """A job that is cancelled saves and ends, and is not queued again."""
    directory, number, complaints = begun(trainer, "cancelled", 1000000)
    if complaints:
        return complaints
    slurm.ask("scancel", number)
    over = lambda: "CANCELLED" in slurm.ask("scontrol", "show", "job", number).stdout and state(directory)["state"] != "running"  # noqa: E731
    ended = wait_for(over, MOST)
    if not ended or state(directory)["state"] != "stopped" or number in slurm.ask("squeue", "--noheader", "--format=%A").stdout.split():
        return [f"{state(directory)}\n{slurm.ask('scontrol', 'show', 'job', number).stdout}\n{(directory / 'log.txt').read_text()[-2000:]}"]
    return []


CHECKS = [(check.__name__, in_a_cluster(check)) for check in (array, jobs)]

"""Jobs that stand still, jobs that only seem to, ranks that die, and launchers that start many jobs of one rank."""
import os
import re
import shutil
import signal
import subprocess
import time

from trainer import Trainer, show, wait_for

from cases import DONE, INPUT, REFUSED
from midrun import ours
from processes import Running

RANK_FAILED = 6
STOPS = [(4, "grid.dp=2 grid.tp=2", 3), (4, "grid.pp=4", 1), (2, "grid.dp=2 sharding.zero_stage=3", 0), (4, "grid.sp=2 grid.pp=2 comm.check=true", 2)]


def launcher_version(trainer):
    """What the launcher says of itself: MPICH's is HYDRA, Open MPI's mpirun says (Open MPI) and its mpiexec (OpenRTE)."""
    mpirun = trainer.environment.get("MPIRUN", "mpirun")
    return subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout


def stopped_rank(trainer):
    """76: a rank stopped by SIGSTOP: the others say who is missing where, once, and the whole job ends with exit 6, the stopped rank too."""
    complaints, lines = [], 0
    for ranks, grid, victim in STOPS:
        run = Running(trainer, ranks, [*grid.split(), "comm.watchdog=2", "output.log_interval=20"], lambda record: True)
        time.sleep(1)  # into the steps
        os.kill(run.ranks[victim], signal.SIGSTOP)
        code, stderr, found = run.end(30)
        said = ours(stderr)
        words = [rf"rank {victim} \(process {run.ranks[victim]} on \S+, stopped by a signal", r"waited for \d+\.\d s",
                 r"no rank has got on for \d"]
        found += [f"not said: {word}" for word in words if not re.search(word, stderr)]
        if code != RANK_FAILED or len(said) != 1:
            found.append(f"exit {code}, said {said}; exit {RANK_FAILED} with one report was due")
        lines += bool(re.search(r"^ +(pp \d, )?line +\d+ [FBWS]\d* \S+ +\w+\(", stderr, re.MULTILINE))
        complaints += [f"{grid}, rank {victim}: {'; '.join(found)}\n{stderr}"] if found else []
    return complaints + ([] if lines else ["no report named a line of the program"])


def suspended_job(trainer):
    """A job whose ranks are all stopped for longer than the watchdog waits, and then go on, is not taken for one that stands still."""
    run = Running(trainer, 4, ["grid.dp=2", "grid.pp=2", "comm.watchdog=1"])
    for process in run.ranks:
        os.kill(process, signal.SIGSTOP)
    time.sleep(3)  # the time itself is what is tested
    steps = len(run.record()["steps/step"])
    for process in run.ranks:
        os.kill(process, signal.SIGCONT)
    goes_on = wait_for(lambda: run.process.poll() is not None or len(run.record()["steps/step"]) > steps, 30) and run.process.poll() is None
    _, stderr, _ = run.end(0)
    return [] if goes_on and not ours(stderr) else [f"exit {run.process.returncode}, {steps} steps before\n{stderr}"]


def slow_job(trainer):
    """Nothing that is merely slow is a stall: idle stages, evaluation, copies to a disk, ranks without cores of their own; the watchdog: a second."""
    (trainer.folder / "tier").mkdir()
    away = [f"offload.{what}=nvme" for what in ("optimizer", "parameters", "activations")] + [f"offload.nvme_path={trainer.folder / 'tier'}"]
    source = INPUT | {"evaluation": {"interval": 1, "batches": 3}, "data": INPUT["data"] | {"split": "80,20"}}
    complaints = []
    for ranks, changes in ((8, ["grid.pp=4", "grid.dp=2", "train.steps=6"]), (4, ["grid.pp=2", "grid.tp=2", "train.steps=3", *away])):
        result = trainer.train(source, ranks, ["comm.watchdog=1", "output.overwrite=true", *changes], seconds=120)
        if result.exit_code != DONE or ours(result.stderr):
            complaints.append(f"{changes}\n{show(result)}")
    return complaints


def killed_rank(trainer):
    """A rank that dies by a signal ends the job within 30 s, with its rank named (by MPICH's launcher its process) and nothing left running."""
    complaints = []
    for sent, ranks, grid, victim in ((signal.SIGKILL, 4, "grid.dp=2 grid.tp=2", 2), (signal.SIGSEGV, 2, "grid.pp=2", 0),
                                      (signal.SIGABRT, 2, "grid.sp=2", 1)):
        run = Running(trainer, ranks, grid.split())
        os.kill(run.ranks[victim], sent)
        code, stderr, found = run.end(30)
        if code == 0 or not re.search(rf"\brank {victim}\b|\bPID {run.ranks[victim]}\b", stderr):
            found.append(f"exit {code}; a failure that names rank {victim} or process {run.ranks[victim]} was due")
        complaints += [f"{sent.name}, {grid}: {'; '.join(found)}\n{stderr}"] if found else []
    return complaints


def lenient_launcher(trainer):
    """Where the launcher lets a job go on without one of its ranks, the rank's neighbour on the node sees that it is gone."""
    if not re.search(r"\((Open MPI|OpenRTE)\) 4", launcher_version(trainer)):
        return "skipped: only Open MPI 4 is known to have such a launcher (--enable-recovery)"
    run = Running(trainer, 4, ["grid.dp=2", "grid.pp=2"], environment={"MPIRUN_FLAGS": "--enable-recovery"}.items())
    os.kill(run.ranks[2], signal.SIGKILL)
    _, stderr, found = run.end(30)  # such a launcher's exit code is its own affair
    said = ours(stderr)
    if len(said) != 1 or not re.search(rf"rank 2 \(process {run.ranks[2]} on \S+\) is gone", said[0]):
        found.append(f"said {said}")
    return [f"{'; '.join(found)}\n{stderr}"] if found else []


def singletons(trainer):
    """A launcher that says several ranks where MPI says one: refused with the fix, once per job. One rank is not, nor a batch script's variables."""
    complaints = []
    for variables, fix in (({"PMI_SIZE": "2"}, "MPIRUN"), ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, "mpirun"),
                           ({"SLURM_STEP_NUM_TASKS": "3"}, "--mpi=pmix"), ({"PMI_SIZE": "1", "SLURM_STEP_NUM_TASKS": "3"}, None),
                           ({"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}, None), ({"SLURM_NTASKS": "8"}, None)):
        result = trainer.train(INPUT, 1, ["output.overwrite=true"], environment=variables.items())
        said = ours(result.stderr)
        if fix is None and (result.exit_code != DONE or said):
            complaints.append(f"{variables}: a run was due\n{show(result)}")
        number = max(variables.values())
        if fix and (result.exit_code != REFUSED or len(said) != 1 or fix not in said[0] or f"started {number} ranks" not in said[0]):
            complaints.append(f"{variables}: exit {REFUSED} with the fix was due\n{show(result)}")
    return complaints


def foreign_launcher(trainer):
    """The same with the mpirun of another MPI, where one is installed: one message for the job, and nothing is created."""
    foreign = "mpirun.openmpi" if "HYDRA" in launcher_version(trainer) else "mpirun.mpich"
    if not shutil.which(foreign):
        return f"skipped: no {foreign}, the launcher of another MPI"
    result = Trainer(trainer.binary, foreign, trainer.folder).train(INPUT, 3, seconds=30)
    said = ours(result.stderr)
    if result.exit_code != REFUSED or len(said) != 1 or "started 3 ranks" not in said[0] or result.output.exists():
        return [f"exit {REFUSED} with one message was due, and no {result.output}\n{show(result)}"]
    return []


CHECKS = [("76 a stopped rank", stopped_rank), ("76 a suspended job goes on", suspended_job), ("76 a slow job goes on", slow_job),
          ("a rank that dies by a signal", killed_rank), ("a launcher that goes on", lenient_launcher)]
SINGLETONS = [("singletons", singletons), ("a foreign launcher", foreign_launcher)]

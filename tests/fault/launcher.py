"""What jobscripts/launch.sh asks of a launcher, and what ranks make of the CPUs that a launcher leaves them."""
import os
import subprocess

from trainer import LAUNCH, Trainer, read_record, show

from cases import DONE, INPUT


def never_binds(trainer):
    """mpirun and srun alike are told to bind no rank, here by stand-ins that print their arguments."""
    complaints = []
    place = trainer.folder / "bin"
    place.mkdir()
    for name, version in (("srun", "slurm 23.02"), ("mpirun", "mpirun (Open MPI) 4.1.4"), ("mpirun.mpich", "HYDRA build details: Version: 4.0")):
        (place / name).write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\necho {name} "$@"\n')
        (place / name).chmod(0o755)
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "MPIRUN"))}
    plain["PATH"] = f"{place}:{plain['PATH']}"
    for variables, words in (({}, ["mpirun", "--bind-to none", "-n 3 true"]),
                             ({"MPIRUN": "mpirun.mpich"}, ["mpirun.mpich", "-bind-to none", "-n 3 true"]),
                             ({"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "8"},
                              ["srun", "--cpu-bind=none", "--ntasks=3", "--cpus-per-task=8 true"])):
        said = subprocess.run([LAUNCH, "3", "true"], env=plain | variables, capture_output=True, text=True, check=False).stdout
        if any(word not in said for word in words):
            complaints.append(f"{variables}: {words} were due, but it runs {said}")
    return complaints


def cpus_of_their_own(trainer):
    """Two ranks that somebody has bound to a CPU each share none: one thread each, and nothing to warn of."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return f"skipped: two CPUs are needed, this process may use {len(cpus)}"
    script = trainer.folder / "bound.sh"
    script.write_text(f'#!/bin/sh\ncpu={cpus[0]}\n[ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}" = 0 ] || cpu={cpus[1]}\n'
                      f'exec taskset -c $cpu {trainer.binary} "$@"\n')
    script.chmod(0o755)
    result = Trainer(script, trainer.environment.get("MPIRUN"), trainer.folder).train(INPUT | {"device": {"threads": "auto"}}, 2)
    if result.exit_code != DONE or "threads" in result.stderr or read_record(result.output)["environment"]["threads"] != "1":
        return [f"a run of one thread a rank without a warning was due\n{show(result)}"]
    return []


CHECKS = [("launch.sh binds no rank", never_binds), ("ranks bound to CPUs of their own", cpus_of_their_own)]

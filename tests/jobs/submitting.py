"""submit.py: what it refuses before anything is queued, the directory that it writes, and runs that it starts here and goes on with."""
import json
import os
import shutil
import signal
import subprocess

from trainer import numpy, read_record, show, wait_for

from scripts import INPUT, LONG, STEPS, end, expect, is_training, ranks_of, start, state, submit, write

FILES = {"input.yaml", "source.yaml", "plan.json", "job.json", "job.sh", "machine.yaml", "bin", "state.json", "log.txt", "lock", "output"}
CLUSTER = "{scheduler: slurm, nodes: 2, cores: 4, memory: 64MiB, ranks_per_node: 2, time: '01:00:00', launch: 'srun -n {ranks} -c {threads}'}"


def refusals(trainer):
    """What is wrong, does not divide or does not fit is not queued, in plan's words, and nothing is written."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "m.yaml", CLUSTER)
    write(trainer.folder / "gpus.yaml", "{scheduler: slurm, cores: 8, memory: 1GiB, gpus: 2, gpu_memory: 1GiB}")
    big = ["model.hidden_size=1024", "model.num_layers=8"]
    complaints = []
    for words, code, said in (
            (["run.yaml", "--ranks", "2", "grid.tp=3"], 2, ["tp·pp·sp is 3 x 1 x 1 = 3 but --ranks is 2"]),
            (["run.yaml", "--ranks", "2", "grid.tpp=3", "model.layers=2"], 2, ["grid.tpp", "model.layers"]),
            (["run.yaml", "--ranks", "3"], 2, ["global_batch_size"]),
            (["run.yaml", "--machine", "m.yaml", "--nodes", "2", *big], 3, ["does not fit in", "offload"]),
            (["run.yaml", "--machine", "m.yaml", "--nodes", "2", "--ranks", "4", "device.memory_limit=4GiB", *big], 3,
             ["of its node's memory", "has 64 MiB for 2 ranks, 32 MiB each"]),
            (["run.yaml", "--machine", "m.yaml", "--nodes", "3"], 2, ["3 nodes are more than the 2"]),
            (["run.yaml", "--machine", "gpus.yaml"], 2, ["device.backend", "cuda"]),
            (["run.yaml", "--machine", "nowhere"], 2, ["there is no machine 'nowhere'"]),
            (["run.yaml", "--time", "4h"], 2, ["--time: found 4h, allowed: [days-]hours:minutes:seconds"]),
            (["run.yaml", "--ranks", "2", "checkpoint.resume=none"], 2, ["checkpoint.resume is none", "checkpoint.resume=auto"]),
            ([], 2, ["the following arguments are required: input\n"]),
            (["no.yaml"], 2, ["there is no such input file"]), (["."], 2, ["no run's"])):
        complaints += expect(" ".join(words), submit(trainer, *words), code, *said)
    left = sorted(path.name for path in trainer.folder.iterdir())
    return complaints + ([] if left == ["counting.txt", "gpus.yaml", "m.yaml", "run.yaml"] else [f"there is now {left}"])


def dry_run(trainer):
    """Says what it would do, for a cluster that is not here, and does nothing."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "m.yaml", CLUSTER)
    ended = submit(trainer, "run.yaml", "--machine", "m.yaml", "--nodes", "2", "--dry-run")
    complaints = expect("dry run", ended, 0, "4 ranks on 2 nodes of m, 2 threads each", "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=2\n",
                        "#SBATCH --cpus-per-task=2\n", "#SBATCH --time=01:00:00\n", "#SBATCH --signal=USR1@120\n", "4 srun -n 4 -c 2 -- ")
    write(trainer.folder / "gpus.yaml", "{scheduler: slurm, cores: 8, memory: 1GiB, gpus: 2, gpu_memory: 1GiB}")
    words = ["--machine", "gpus.yaml", "--dry-run", "device.backend=cpu"]
    write(trainer.folder / "narrow.yaml", "{scheduler: none, cores: 2}")
    narrow = ["--ranks", "4", "--machine", trainer.folder / "narrow.yaml", "--dry-run"]
    complaints += expect("more than cores", submit(trainer, "run.yaml", *narrow), 0, "4 ranks share 2 cores of narrow")
    complaints += expect("GPUs' cores", submit(trainer, "run.yaml", *words), 0, "2 ranks on 1 node")
    return complaints + ([] if not (trainer.folder / "runs").exists() else ["a dry run has written something"])


def sbatch_refuses(trainer):
    """Nothing is queued, and the same command, put right, begins the run, also where the machine is another by then."""
    write(trainer.folder / "run.yaml", INPUT)
    write(trainer.folder / "m.yaml", CLUSTER)
    tool(trainer, "sbatch", "echo no such partition >&2\nexit 1")
    complaints = expect("refused", submit(trainer, "run.yaml", "--machine", "m.yaml"), 2, "no such partition", "nothing was queued")
    return complaints + expect("put right", submit(trainer, "run.yaml", "--machine", "m.yaml", "--nodes", "2", "--dry-run"), 0, "2 nodes of m")


def launch_lines(trainer):
    """Four nodes of each shipped machine that has as many: what sbatch reads, and the words that srun gets, which are the machine file's."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"global_batch_size": 64}})
    tool(trainer, "sbatch", 'echo 17')
    tool(trainer, "srun", 'printf "%s\\n" "$@" >"$TMPDIR/srun.words"')
    environment = {"SLURM_JOB_ID": "17", "TMPDIR": str(trainer.folder)}
    complaints = expect("laptop", submit(trainer, "run.yaml", "--machine", "laptop", "--nodes", "4"), 2, "4 nodes are more than the 1")
    for name, on_node, threads, more in (("cpu-cluster", 8, 8, ()), ("gpu-cluster", 4, 16, ("--gres=gpu:4",))):
        directory = trainer.folder / "runs" / name
        words = ["--machine", name, "--nodes", "4", "--directory", directory, "device.backend=cpu"]
        complaints += expect(name, submit(trainer, "run.yaml", *words), 0, f"{4 * on_node} ranks on 4 nodes of {name}", "queued as job 17")
        head = {line.removeprefix("#SBATCH ") for line in (directory / "job.sh").read_text().splitlines() if line.startswith("#SBATCH ")}
        due = {"--nodes=4", f"--ntasks-per-node={on_node}", f"--cpus-per-task={threads}", "--time=04:00:00", "--signal=USR1@180", "--requeue",
               "--open-mode=append", *more}
        complaints += [f"{name}: sbatch is told {sorted(head)}, without {sorted(due - head)}"] if not due <= head else []
        done = subprocess.run(["bash", directory / "job.sh"], env=trainer.environment | environment, check=False, timeout=100)
        ran = (trainer.folder / "srun.words").read_text().splitlines()
        due = ["--mpi=pmix", "--kill-on-bad-exit=1", "--cpu-bind=cores", "--nodes=4", f"--ntasks={4 * on_node}", f"--ntasks-per-node={on_node}",
               f"--cpus-per-task={threads}", str(directory / "bin/quadrille"), "train", str(directory / "input.yaml")]
        complaints += [] if done.returncode == 0 and ran == due else [f"{name}: exit {done.returncode}, srun got {ran}, due {due}"]
    return complaints


def tool(trainer, name, body):
    """A command of Slurm's that does as it is told, before any other of that name."""
    folder = trainer.folder / "tools"
    if not folder.exists():
        folder.mkdir()
        trainer.environment["PATH"] = f"{folder}{os.pathsep}{trainer.environment['PATH']}"
    (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
    (folder / name).chmod(0o755)


def here(trainer):
    """A run here: its directory holds all of it, its record is that of the same run by hand, and its input runs the same from anywhere."""
    write(trainer.folder / "run.yaml", INPUT | {"comm": {"bucket_size": "auto"}})
    begun = trainer.folder / "runs/my job"  # by a submit.py that was killed before it had written job.sh
    (begun / "bin").mkdir(parents=True)
    for name in ("job.json", "job.sh.new"):
        (begun / name).write_text("{")
    by_hand = trainer.train(INPUT | {"comm": {"bucket_size": "auto"}}, 2, ["grid.tp=2"], 300)
    directory = trainer.folder / "runs/my job"
    ended = submit(trainer, "run.yaml", "--ranks", "2", "grid.tp=2", "--directory", directory)
    complaints = expect("here", ended, 0, "step 4/4", "done: ")
    if complaints or by_hand.exit_code != 0:
        return complaints or [show(by_hand)]
    left, job = {path.name for path in directory.iterdir()}, json.loads((directory / "job.json").read_text())
    if left != FILES:
        complaints.append(f"the directory has {left ^ FILES} more or less")
    if (job["ranks"], job["nodes"], job["machine"], job["overrides"], len(job["commit"]) > 6) != (2, 1, "laptop", ["grid.tp=2"], True):
        complaints.append(f"job.json: {job}")
    for key in ("bucket_size: auto", "threads: 1", "memory_limit: auto"):
        if key not in (directory / "input.yaml").read_text():
            complaints.append(f"the input lacks {key}")
    losses = read_record(by_hand.output)["steps/loss"]
    if not numpy.array_equal(losses, read_record(directory / "output")["steps/loss"]):
        complaints.append("the losses are not those of the run by hand")
    os.rename(trainer.folder / "run.yaml", trainer.folder / "gone.yaml")
    shutil.rmtree(directory / "output")
    (directory / "state.json").unlink()
    done = subprocess.run(["bash", directory / "job.sh"], env=trainer.environment, cwd="/", capture_output=True, text=True, check=False, timeout=300)
    if done.returncode or not numpy.array_equal(losses, read_record(directory / "output")["steps/loss"]):
        complaints.append(f"by its script: exit {done.returncode}\n{done.stderr}")
    complaints += expect("done", submit(trainer, directory), 0, "is done")
    complaints += expect("again", submit(trainer, "gone.yaml", "--directory", directory), 2, "is a run's, which is done: --directory")
    another = submit(trainer, directory, "--ranks", "4", "train.steps=9")
    complaints += expect("another trainer", submit(trainer, directory, "--binary", trainer.binary), 2, "--binary cannot be changed")
    return complaints + expect("another way", another, 2, "--ranks, train.steps=9 cannot be changed")


def odd_directories(trainer):
    """What a directory's name means in YAML or to a shell does not lead elsewhere; what cannot be a path or a word of a script is refused."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    complaints = []
    for name in ("mine #2", "a: b", "it's \"q\" [x] {y} & \\ !", "50% é"):
        directory = trainer.folder / "runs" / name
        words = ["run.yaml", "--ranks", "1", "--directory", directory, "output.overwrite=true"]
        complaints += expect(name, submit(trainer, *words), 0, f"done: {directory}")
        complaints += [] if (directory / "output/run.h5").exists() else [f"{name}: there is no record"]
    left = sorted(path.name for path in (trainer.folder / "runs").iterdir())
    if len(left) != 4:
        complaints.append(f"there is now {left}")
    for words, said in ((["--directory", "runs/$HOME"], "has a $"), (["--directory", "runs/a\nb"], "the directory has a line break"),
                        (["--name", "a\ntouch hacked\n#"], "the job's name has a line break"), (["--directory", b"runs/\xff"], "is not UTF-8"),
                        (["--time", "0:0:0"], "--time: found 0:0:0, allowed: [days-]hours:minutes:seconds, from 0:0:1 on")):
        words = [os.fsdecode(word) for word in words]
        complaints += expect(f"{words}", submit(trainer, "run.yaml", "--ranks", "1", *words), 2, said)
    return complaints + ([] if left == sorted(path.name for path in (trainer.folder / "runs").iterdir()) else ["something was written"])


def moved(trainer):
    """A directory that was moved or copied does not act on the one that it was made as; by a link it is the same one."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    directory, other = trainer.folder / "runs/one", trainer.folder / "runs/other"
    complaints = expect("one", submit(trainer, "run.yaml", "--ranks", "1", "--directory", directory), 0, "done: ")
    write(directory / "state.json", (directory / "state.json").read_text().replace('"done"', '"failed"'))
    shutil.copytree(directory, other)
    complaints += expect("a copy", submit(trainer, other), 2, f"{other} was made as {directory}", f"`submit.py {directory}` goes on with that one")
    shutil.rmtree(other)
    directory.rename(other)
    complaints += expect("moved", submit(trainer, other), 2, f"{other} was made as {directory}", "move it back there")
    directory.symlink_to(other)
    return complaints + expect("a link", submit(trainer, other), 0, "done: ")


def damaged_files(trainer):
    """What is damaged is named, with what to do, and that helps; an empty state.json is no more than a sentence. So is what cannot be written."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    directory = trainer.folder / "runs/one"
    directory.mkdir(parents=True)
    (directory / "job.json.new").symlink_to("/dev/full")
    words = ["run.yaml", "--ranks", "1", "--directory", directory]
    complaints = expect("a full disk", submit(trainer, *words), 5, "submit.py: ", "one/job.json.new: No space left on device")
    (directory / "job.json.new").unlink()
    complaints += expect("then", submit(trainer, *words), 0, "done: ")
    write(directory / "state.json", "")
    complaints += expect("an empty state", submit(trainer, *words), 2, "goes on with it") + expect("so", submit(trainer, directory), 0, "done: ")
    complaints += [] if "state.json is damaged" in (directory / "log.txt").read_text() else ["the log does not tell of it"]
    for text in ("", "{", "null", '{"command": "x"}'):
        write(directory / "state.json", "{}")
        write(directory / "job.json", text)
        complaints += expect(f"job.json '{text}'", submit(trainer, directory), 5, "job.json is damaged: ", "remove it")
    (directory / "job.json").unlink()
    complaints += expect("removed", submit(trainer, directory), 0, "done: ")
    write(directory / "machine.yaml", CLUSTER)
    write(directory / "state.json", "{}")
    write(directory / "jobs.json", "[1]")
    return complaints + expect("jobs.json", submit(trainer, directory), 5, "jobs.json is damaged: it has no object at [0]", "squeue --me")


def unwritable_state(trainer):
    """A run whose state.json cannot be written ends as it did, and that is said."""
    write(trainer.folder / "run.yaml", INPUT | {"train": INPUT["train"] | {"steps": 1}})
    directory = trainer.folder / "runs/one"
    complaints = expect("one", submit(trainer, "run.yaml", "--ranks", "1", "--directory", directory), 0, "done: ")
    write(directory / "state.json", (directory / "state.json").read_text().replace('"done"', '"stopped"'))
    (directory / "state.json.new").mkdir()
    return complaints + expect("another", submit(trainer, directory), 5, "failed: ", "state.json cannot be written: the run is not begun\n",
                               "exit code 5, of which state.json says nothing (there it is stopped)")


def interrupted(trainer):
    """Ctrl-C while it plans is a line, not a traceback; a signal before attempt.sh listens is a run that has not begun."""
    write(trainer.folder / "run.yaml", INPUT)
    binary, ready = trainer.folder / "trainer", trainer.folder / "ready"
    write(binary, f'#!/bin/sh\n[ "$1" = --version ] && exec "{trainer.binary}" --version\ntouch "{ready}"\nexec sleep 100\n')
    binary.chmod(0o755)
    process = start(trainer, "submit.py", "--binary", binary, "run.yaml", "--ranks", "1")
    if not wait_for(ready.exists, 100):
        return [f"it does not plan\n{end(process, 1)}"]
    os.killpg(process.pid, signal.SIGINT)
    ended = end(process, 100)
    complaints = expect("while it plans", ended, 130, "submit.py: interrupted\n")
    complaints += ["a traceback was shown"] if "Traceback" in ended[2] else []
    directory = trainer.folder / "runs/one"
    complaints += expect("one", submit(trainer, "run.yaml", "--ranks", "1", "train.steps=1", "--directory", directory), 0, "done: ")
    (directory / "state.json").unlink()
    write(directory / "job.sh", f'touch "{directory}/ready"\nexec sleep 100\n')
    process = start(trainer, "submit.py", directory)
    if not wait_for((directory / "ready").exists, 100):
        return [f"it does not start\n{end(process, 1)}"]
    process.send_signal(signal.SIGTERM)
    return complaints + expect("before it listens", end(process, 100), 75, "stopped: ", "stopped before it had begun", "goes on from here")


def checkpoints_of_another(trainer):
    """A new run that finds another's steps in its checkpoint.directory is told so."""
    write(trainer.folder / "run.yaml", INPUT)
    words = ["run.yaml", "--ranks", "1", "checkpoint.directory=steps", "--dry-run"]
    complaints = [] if "of another run" not in submit(trainer, *words)[2] else ["it is told without any"]
    (trainer.folder / "steps/step-00000006").mkdir(parents=True)
    return complaints + expect("another's", submit(trainer, *words), 0, f"{trainer.folder / 'steps'} holds step-00000006 of another run")


def stop_and_go_on(trainer):
    """A rank that gets SIGUSR1: the run goes on at once. submit.py that gets SIGTERM: it saves, stops, and goes on when it is asked to."""
    write(trainer.folder / "run.yaml", INPUT)
    directory = trainer.folder / "runs/run-job"
    process = start(trainer, "submit.py", "--binary", trainer.binary, "run.yaml", "--ranks", "2", "--time", "0:10:00",
                    *(f"{key}={value}" for key, value in LONG.items()))
    if not wait_for(lambda: is_training(directory), 200):
        return [f"it has not begun\n{end(process, 1)}"]
    os.kill(ranks_of(directory)[0], signal.SIGUSR1)
    again = lambda: state(directory)["attempts"] == 2 and is_training(directory, "goes on after step")  # noqa: E731
    complaints = [] if wait_for(again, 200) else [f"not gone on with: {state(directory)}"]
    process.send_signal(signal.SIGTERM)
    complaints += expect("SIGTERM", end(process, 200), 75, "stopped: ", "goes on from here")
    if state(directory)["state"] != "stopped" or "stopped after step" not in state(directory)["reason"]:
        complaints.append(f"{state(directory)}")
    complaints += expect("another run", submit(trainer, "run.yaml", "--ranks", "2"), 2, "is a run's, and `submit.py", "goes on with it")
    complaints += expect("going on", submit(trainer, directory), 0, "goes on after step", f"step {STEPS}/{STEPS}")
    record = read_record(directory / "output")
    if state(directory)["state"] != "done" or state(directory)["attempts"] != 3 or record["steps/step"].tolist() != list(range(1, STEPS + 1)):
        complaints.append(f"{state(directory)}, {len(record['steps/step'])} steps")
    return complaints + ([] if "\n  time_limit: 600\n" in record["config"]["yaml"] else ["the trainer was not told of its time"])


CHECKS = [(check.__name__, check) for check in (refusals, dry_run, sbatch_refuses, launch_lines, here, odd_directories, moved,
                                                  damaged_files, unwritable_state, interrupted, checkpoints_of_another, stop_and_go_on)]

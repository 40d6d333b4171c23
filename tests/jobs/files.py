"""Machine and sweep files: what is wrong is told at once, and what is right means what the README says."""
import concurrent.futures
import contextlib
import errno
import fcntl
import io
import pathlib
import subprocess
import unittest.mock

import document
import keeping
import machine
import points
import runs
import slurm
import standing
import sweeps

from trainer import wait_for

from scripts import INPUT, JOBSCRIPTS, expect, sweep, write

BAD_MACHINE = """\
scheduler: slrum
cors: 8
cores: 8
memory: lots
gpus: 4
ranks_per_node: 9
time: 4h
launch: srun -n {rank} "x
cores: 9
"""
BAD_SWEEP = """\
base: nothing.yaml
kind: weka
ranks: [2, 3, 2]
grow: dp
fixed: {train.steps: 3, steps: 4}
vary:
  ranks: [1, 2]
  sharding.zero_stage: []
  offload: [none, cpu]
repetitions: 0
"""


def refusal(function, *arguments):
    """What a call refuses with, "" if it does not."""
    try:
        function(*arguments)
    except document.Refused as refused:
        return str(refused)
    return ""


def lacking(said, *words):
    return [f"not said: {word}\n{said}" for word in words if word not in said]


def machines(trainer):
    """The shipped machine files load; a wrong one is told of with all its problems, their lines and the nearest names; all keys are in the README."""
    complaints = [f"{name}: {machine.load(name)}" for name in machine.names() if not machine.load(name).about]
    if machine.names() != ["cpu-cluster", "gpu-cluster", "laptop"]:
        complaints.append(f"the machines are {machine.names()}")
    said = refusal(machine.load, str(write(trainer.folder / "bad.yaml", BAD_MACHINE)))
    complaints += lacking(said, "bad.yaml:1:1: scheduler: found slrum, allowed: slurm | none; did you mean slurm?", "bad.yaml:2:1: cors is no key",
                          "did you mean cores?", "bad.yaml:4:1: memory: found lots", "gpus is 4 and gpu_memory not given", "ranks_per_node is 9",
                          "bad.yaml:7:1: time: found 4h, allowed: [days-]hours:minutes:seconds", "{rank} stands for nothing; did you mean ranks?",
                          "no line of words", "found cores twice, first at line 3")
    complaints += lacking(refusal(machine.load, "laptpo"), "there is no machine 'laptpo'; did you mean laptop?")
    complaints += lacking(refusal(machine.load, str(write(trainer.folder / "no.yaml", "a: [1"))), "no.yaml:1:", "is not YAML")
    complaints += lacking(refusal(machine.load, str(write(trainer.folder / "list.yaml", "- 1"))), "found no mapping")
    readme = (JOBSCRIPTS / "README.md").read_text()
    complaints += [f"the README lacks `{row.name}`" for row in (*machine.TABLE, *points.TABLE) if f"`{row.name}`" not in readme]
    return complaints


def layouts(trainer):
    """Ranks, nodes and ranks per node: two give the third, and what a machine does not have is refused."""
    cluster = machine.load(str(write(trainer.folder / "m.yaml", "{scheduler: slurm, nodes: 4, cores: 16, memory: 64GiB, ranks_per_node: 8}")))
    found = [(lay.ranks, lay.nodes, lay.ranks_per_node, lay.threads, lay.memory) for lay in (
        machine.lay_out(cluster, nodes=2), machine.lay_out(cluster, ranks=4), machine.lay_out(cluster, ranks=12),
        machine.lay_out(cluster, ranks=4, nodes=4), machine.lay_out(cluster, nodes=2, ranks_per_node=16))]
    due = [(16, 2, 8, 2, 2**33), (4, 1, 4, 4, 2**34), (12, 2, 6, 2, 2**36 // 6), (4, 4, 1, 16, 2**36), (32, 2, 16, 1, 2**32)]
    complaints = [] if found == due else [f"layouts {found}, due {due}"]
    complaints += lacking(refusal(machine.lay_out, cluster, 7, 2), "7 ranks are not 2 nodes of 4: on 2 allowed are multiples of 2, such as 6 or 8")
    complaints += lacking(refusal(machine.lay_out, cluster, None, 5), "5 nodes are more than the 4 that a job on m may have")
    complaints += lacking(refusal(machine.lay_out, cluster, None, 1, 17), "17 ranks a node are more than its 16 cores")
    laptop = machine.lay_out(machine.load("laptop"), ranks=1000)
    return complaints + ([] if (laptop.nodes, laptop.threads) == (1, 1) else [f"1000 ranks on a laptop: {laptop}"])


def bad_sweeps(trainer):
    """All that is wrong with a sweep file is told at once."""
    said = refusal(points.load, write(trainer.folder / "bad.yaml", BAD_SWEEP))
    complaints = lacking(said, "base: found nothing.yaml, but there is no file",
                         "kind: found weka, allowed: product | weak | strong; did you mean weak?",
                         "ranks: found [2, 3, 2]", "grow is no key of a sweep file; did you mean grows?", "keys written section.key, not steps",
                         "axes other than ranks", "a list of values for sharding.zero_stage", "for offload, which is no section.key",
                         "repetitions: found 0")
    write(trainer.folder / "run.yaml", INPUT)
    text = "{base: run.yaml, kind: strong, scales: layers, ranks: [2, 3], fixed: {train.steps: 2}, vary: {train.steps: [1], grid.dp: [2]}}"
    said = refusal(points.load, write(trainer.folder / "bad.yaml", text))
    return complaints + lacking(said, "scales has no meaning with kind strong", "each is a multiple of the fewest, 2; 3 is not",
                                "train.steps is both in fixed and in axis train.steps", "kind strong derives it from the ranks")


def expansion(trainer):
    """The product of the axes, each value as it was written; repetitions; names and folders."""
    write(trainer.folder / "run.yaml", INPUT)
    text = """{base: run.yaml, ranks: [2, 4], repetitions: 2, fixed: {optimizer.lr: 1e-4, data.split: "90,10", data.shuffle: on},
               vary: {sharding.zero_stage: [0, 1], offload: {none: {}, cpu: {offload.optimizer: cpu, comm.compression.exclude: [a, b]}}}}"""
    found = points.expand(points.load(write(trainer.folder / "s.yaml", text)), None)
    last = {"name": "ranks=4 zero_stage=1 offload=cpu #2", "at": {"ranks": 4, "sharding.zero_stage": 1, "offload": "cpu"}, "repetition": 2,
            "ranks": 4, "overrides": ["optimizer.lr=1e-4", 'data.split="90,10"', "data.shuffle=on", "sharding.zero_stage=1", "offload.optimizer=cpu",
                          "comm.compression.exclude=[a, b]"], "dropped": None}
    complaints = [] if len(found) == 16 and found[-1] == last else [f"{len(found)} points, the last {found[-1]}"]
    if len({points.identity(point) for point in found}) != 16:
        complaints.append("points are not told apart")
    if points.directory_name(7, last) != "0007-ranks-4-zero_stage-1-offload-cpu-2":
        complaints.append(points.directory_name(7, last))
    return complaints


def scaling(trainer):
    """What weak and strong scaling derive from the ranks."""
    write(trainer.folder / "run.yaml", INPUT)
    base = {"grid.dp": "1", "grid.pp": "2", "train.global_batch_size": "12", "train.micro_batch_size": "3", "model.num_layers": "4"}
    complaints = []
    for kind, due in (("kind: weak", {"grid.dp": "4", "train.global_batch_size": "48"}),
                      ("kind: strong", {"grid.dp": "4", "train.global_batch_size": "12"}),
                      ("kind: weak, scales: layers, grows: pp", {"grid.pp": "8", "train.global_batch_size": "12", "model.num_layers": "16"})):
        file = points.load(write(trainer.folder / "s.yaml", f"{{base: run.yaml, ranks: [2, 8], {kind}, fixed: {{train.global_batch_size: 12}}}}"))
        asked = []
        found = points.expand(file, lambda words, ranks, asked=asked: asked.append((words, ranks)) or base)
        due = due | {"train.micro_batch_size": "3", "train.gradient_accumulation_steps": "auto"}
        if dict(word.split("=") for word in found[1]["overrides"]) != due or found[1]["ranks"] != 8 or len(found) != 2:
            complaints.append(f"{kind}: {found[1]}, due {due}")
        if asked != [(["train.global_batch_size=12"], 2)]:
            complaints.append(f"{kind}: the base was asked for on {asked}")
    return complaints


def locks(trainer):
    """A run that says it runs is killed where its lock is free; not where it is held, nor where there are no locks, of which sweep.py tells."""
    write(trainer.folder / "state.json", {"state": "running"})
    complaints = []
    for lock, none, due in ((False, False, "killed"), (True, False, "running"), (False, True, "running")):
        with open(trainer.folder / "lock", "w") as held, contextlib.redirect_stderr(io.StringIO()) as said:
            if lock:
                fcntl.flock(held, fcntl.LOCK_EX)
            with unittest.mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "no locks")) if none else contextlib.nullcontext():
                found = standing.state_of(trainer.folder)["state"]
                with sweeps.locked(trainer.folder):
                    pass
        if found != due or ("no locks" in said.getvalue()) != none:
            complaints.append(f"held {lock}, without locks {none}: {found}, due {due}; said: {said.getvalue()}")
    return complaints


def a_lock_that_goes_away(trainer):
    """A sweep.py that waits for another, which then leaves nothing, works in a directory that is there."""
    directory = trainer.folder / "runs/s-sweep"
    first = sweeps.locked(directory)
    with contextlib.redirect_stdout(io.StringIO()) as said, concurrent.futures.ThreadPoolExecutor() as pool:
        first.__enter__()
        second = sweeps.locked(directory)
        waits = pool.submit(second.__enter__)
        wait_for(lambda: "waits for another" in said.getvalue(), 60)
        sweeps.leave_nothing(directory)
        first.__exit__(None, None, None)
        waits.result(60)
        held = standing.is_locked(directory / "sweep.lock")
        second.__exit__(None, None, None)
    return [] if held else ["it works without a lock"]


def own_files(trainer):
    """What is damaged is told by name, with what is wrong and what to do; what is whole is read, whatever its texts hold."""
    path, shape = trainer.folder / "x.json", {"a": [{"b": {"c", "d"}}], "e": (int, type(None))}
    complaints = []
    for text, said in ((b"", "it is empty; do that"), (b"{", "it is no JSON: "), (b"\xff", "it is no JSON: "), (b"[" * 10**5, "it is no JSON: "),
                       (b"[]", "it has no object; "), (b'{"a": []}', "it has no e; "), (b'{"a": {}, "e": 1}', "it has no list at a; "),
                       (b'{"a": [{"b": "c"}, {}], "e": 1}', "it has no b at a[1]; "), (b'{"a": [{"b": "f"}], "e": 1}', 'it has "f" at a[0].b; '),
                       (b'{"a": [], "e": "1"}', 'it has "1" at e; ')):
        path.write_bytes(text)
        complaints += lacking(refusal(keeping.read, path, shape, "do that"), f"{path} is damaged: {said}")
    path.write_bytes(b'{"a": [{"b": "d"}], "e": null, "more": "\xff"}')
    return complaints + ([] if keeping.read(path, shape, "")["a"] == [{"b": "d"}] else ["what is whole is not read"])


def words_for_scripts(trainer):
    """What would break a line of a script is refused where it is written, and so is a run that would write elsewhere than it was told to."""
    bad = """{scheduler: slurm, cores: 2, memory: 1GiB, account: "a\\nb", partition: "a\\tb", options: ["--x\\ny"], modules: ["a\\rb"],
              environment: {"A; B": c}, time: "0:0:0"}"""
    said = refusal(machine.load, str(write(trainer.folder / "m.yaml", bad)))
    complaints = lacking(said, "account: ", "partition: ", "options: ", "modules: ", "environment: ", 'time: found "0:0:0"')
    write(trainer.folder / "run.yaml", INPUT)
    for name in ("../../evil", "a\\nb", ".", ""):
        said = refusal(points.load, write(trainer.folder / "s.yaml", f'{{base: run.yaml, ranks: 1, name: "{name}"}}'))
        complaints += lacking(said, "name: ", "allowed: ")
    said = refusal(points.load, write(trainer.folder / "a\nb.yaml", "{base: run.yaml, ranks: 1}"))
    complaints += lacking(said, "the sweep's name has a line break")
    answer = subprocess.CompletedProcess([], 0, 'output:\n  directory: "/elsewhere"\n', "")
    trainer_that_misreads, laptop = unittest.mock.Mock(plan=lambda *_: answer), machine.load("laptop")
    said = refusal(runs.prepare, trainer_that_misreads, laptop, machine.lay_out(laptop, 1), trainer.folder / "run.yaml", [], pathlib.Path("/a"))
    return complaints + lacking(said, 'the run would write to "/elsewhere", not to "/a/output"')


def words_for_sbatch(trainer):
    """Paths with spaces, quotes and percent signs in a script's head; indices of an array."""
    cluster = machine.load(str(write(trainer.folder / "m.yaml", "{scheduler: slurm, cores: 2, memory: 1GiB, account: a b, options: [--exclusive]}")))
    head = slurm.script_head(cluster, machine.lay_out(cluster, ranks=2), "n", "01:00:00", pathlib.Path('/x y/50%"/log.txt'))
    complaints = lacking(head, '#SBATCH "--output=/x y/50%%\\"/log.txt"\n', '#SBATCH "--account=a b"\n', "#SBATCH --exclusive\n",
                         "#SBATCH --time=01:00:00\n")
    ranges = slurm.ranges([7, 1, 2, 3, 9, 8])
    return complaints + ([] if ranges == "1-3,7-9" else [ranges])


def jobs_of_an_array(trainer):
    """Each job is the run of its number, also where a killed sweep.py has left another folder of that number; of no other number there is a run."""
    folders = {}
    for number, name in ((3, "0003-a"), (3, "0003-b"), (12, "0012-a")):
        folders[number] = trainer.folder / name
        folders[number].mkdir()
        write(folders[number] / "job.sh", f"echo {name}")
    complaints = []
    for number, due in ((3, (0, "0003-b\n")), (12, (0, "0012-a\n")), (4, (2, ""))):
        done = subprocess.run(["bash", "-c", runs.array_body(folders)], capture_output=True, text=True, check=False,
                              env=trainer.environment | {"SLURM_ARRAY_TASK_ID": str(number)})
        if (done.returncode, done.stdout) != due:
            complaints.append(f"job {number}: exit {done.returncode}, {done.stdout}{done.stderr}")
    return complaints


def origins(trainer):
    """What plan complains of is told by its place in the sweep file."""
    write(trainer.folder / "run.yaml", INPUT)
    text = "{base: run.yaml, kind: strong, ranks: [1, 2], fixed: {train.steps: 2}, vary: {a: {b: {train.seed: 7}}}}"
    planner = sweeps.Planner(points.load(write(trainer.folder / "s.yaml", text)), None, None, None)
    said = planner.in_words_of_the_file("override 1 'train.steps=2' and override 12 'train.seed=7', override 3 'train.global_batch_size=8'")
    due = "fixed, 'train.steps=2' and axis a, 'train.seed=7', kind strong, 'train.global_batch_size=8'"
    return [] if said == due else [said]


def shipped_sweeps(trainer):
    """Every sweep that is shipped can run here, whole."""
    complaints = []
    for path in sorted((JOBSCRIPTS.parent / "inputs/sweeps").glob("*.yaml")):
        ended = sweep(trainer, path, "--dry-run", "--machine", "laptop")
        complaints += expect(path.name, ended, 0, "point 0: ") + ([f"{path.name}\n{ended[1]}"] if "dropped" in ended[1] else [])
        if path.read_text().count(f"jobscripts/sweep.py inputs/sweeps/{path.name}\n") != 1:
            complaints.append(f"{path.name} does not say how it is run")
    return complaints + ([] if not (trainer.folder / "runs").exists() else ["a dry run has written something"])


CHECKS = [(check.__name__, check) for check in (machines, layouts, bad_sweeps, expansion, scaling, locks, a_lock_that_goes_away, own_files,
                                                  words_for_scripts, words_for_sbatch, jobs_of_an_array, origins, shipped_sweeps)]

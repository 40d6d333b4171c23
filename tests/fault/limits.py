"""Runs that meet the end of memory: budgets, the process's own limits, and what the operating system counts against the plan."""
import re
import shutil
import subprocess

from trainer import Trainer, check_ledgers, read_record, show

from cases import DONE, INPUT, MODEL, NO_MEMORY

# Some 2.3 GiB of state, far above the limit of 1.5 GB that a process starts easily under.
LARGE = "model.num_layers=12 model.hidden_size=1024 model.num_attention_heads=16 model.ffn_hidden_size=4096".split()
LIMIT_KIB = 1500000


def limited(trainer, rank, kib):
    """A trainer whose rank `rank` (any, where it is None) runs under `ulimit -v`."""
    script = trainer.folder / "limited.sh"
    condition = f'[ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}" = {rank} ] && ' if rank is not None else ""
    script.write_text(f'#!/bin/sh\n{condition}ulimit -v {kib}\nexec {trainer.binary} "$@"\n')
    script.chmod(0o755)
    return Trainer(script, trainer.environment.get("MPIRUN"), trainer.folder)


def expect(result, exit_code, *words):
    """Complaints unless the run ended so, with these words (regular expressions) on stderr, each line said once."""
    missing = [word for word in words if not re.search(word, result.stderr)]
    said = [line for line in result.stderr.splitlines() if line.startswith("quadrille:")]
    twice = [line for line in dict.fromkeys(said) if said.count(line) > 1]
    if result.exit_code == exit_code and not missing and not twice:
        return []
    return [f"exit {exit_code} was due; missing: {missing}; said twice: {twice}\n{show(result)}"]


def suggestions(text):
    return re.findall(r"^(\S+=.*)  # device peak (.+)$", text, re.MULTILINE)


def advice_when_it_does_not_fit(trainer):
    """67: over budget the run says where the peak stands and what would fit: what `plan` says, and it holds."""
    source = INPUT | {"model": MODEL | {"vocab_size": 4096}, "train": INPUT["train"] | {"micro_batch_size": 4}}
    budget = "device.memory_limit=15MiB"
    result = trainer.train(source, 2, [budget])
    complaints = expect(result, NO_MEMORY, r"rank 0 needs .* has 15\.0 MiB \(device\.memory_limit\)", "the peak stands at op",
                        "the largest there", "activations")
    if result.output.exists():
        complaints.append(f"refused, yet {result.output} exists")
    planned = trainer.run(["plan", "run.yaml", budget, "--ranks", 2])
    found = suggestions(result.stderr)
    if not found or found != suggestions(planned.stdout) or planned.exit_code != NO_MEMORY:
        return [*complaints, f"the run proposes {found}, the plan {suggestions(planned.stdout)}\n{show(result)}"]
    for change, _ in found:
        complaints += expect(trainer.train(source, 2, [budget, *change.split(), "output.overwrite=true"]), DONE)
    return complaints


def one_rank_under_a_limit(trainer):
    """67: one rank of two may not map as much as the plan needs: all end, before anything is touched, with the rank and the bytes."""
    result = limited(trainer, 1, LIMIT_KIB).train(INPUT, 2, ["grid.dp=2", *LARGE])
    return expect(result, NO_MEMORY, r"rank 1 needs 2\.\d+ GiB of device memory and has .* \(what ulimit -v leaves\)", "optimizer")


def refused_while_compiling(trainer):
    """Memory refused before there is a plan: exit 3 with the bytes that were asked, on one rank and on all."""
    bytes_asked = r"out of memory: \d+ bytes were asked for"
    run = limited(trainer, 1, 480000).train(INPUT, 2, ["train.global_batch_size=20000", "grid.dp=2"])
    plan = limited(trainer, None, 250000).run(["plan", "run.yaml", "train.global_batch_size=10000"])
    return expect(plan, NO_MEMORY, bytes_asked) + expect(run, NO_MEMORY, "rank 1: " + bytes_asked)


def no_room_for_the_first_thread(trainer):
    """A thread's stack, by `ulimit -s`, is more than `ulimit -v` leaves: exit 3 and a sentence, before there is MPI."""
    script = trainer.folder / "stacks.sh"
    script.write_text(f'#!/bin/sh\nulimit -v {LIMIT_KIB}\nulimit -s {2 * LIMIT_KIB}\nexec {trainer.binary} "$@"\n')
    script.chmod(0o755)
    return expect(Trainer(script, None, trainer.folder).train(INPUT, 1), NO_MEMORY, "a thread cannot be started")


def resident_memory(trainer):
    """67: what the operating system counts for a process, less that of a tiny run, is its arenas, within 10 %."""
    large = ("model.hidden_size=512 model.num_attention_heads=8 model.ffn_hidden_size=2048 model.vocab_size=4096 "
             "train.global_batch_size=4 train.micro_batch_size=2").split()
    complaints = []
    untied, two_stages = "model.tie_word_embeddings=false", "grid.dp=2 grid.pp=2"
    for ranks, kind in ((1, "grid.dp=1"), (1, untied), (2, "grid.pp=2"), (2, "grid.tp=2"), (2, "grid.dp=2 sharding.zero_stage=1"),
                        (2, f"grid.dp=2 sharding.zero_stage=2 recompute.granularity=full {untied}"),
                        (2, "grid.dp=2 sharding.zero_stage=3 recompute.granularity=selective"),
                        (4, f"{two_stages} sharding.zero_stage=0 recompute.granularity=full"), (4, f"{two_stages} sharding.zero_stage=3 {untied}"),
                        (4, f"{two_stages} sharding.zero_stage=2 recompute.granularity=selective")):
        peaks = []
        for changes in ([], large):
            result = trainer.train(INPUT, ranks, [*kind.split(), *changes, "output.overwrite=true"])
            if result.exit_code != DONE:
                raise RuntimeError(show(result))
            record = read_record(result.output)
            peaks.append((record["memory/process_peak"], record["memory/reserved"][:, :2].sum(axis=1)))
        (tiny, tiny_arenas), (process, arenas) = peaks
        ratio = (process - tiny) / (arenas - tiny_arenas)
        if not (abs(ratio - 1) <= 0.1).all() or not (arenas >= 80e6).all():
            complaints.append(f"{kind}: the processes grew by {process - tiny} bytes where their arenas grew by {arenas - tiny_arenas}: {ratio}")
    return complaints


def no_room_for_shared_memory(trainer):
    """A small /dev/shm: collectives go by messages with one warning, and an algorithm that needs it is refused; nothing dies of SIGBUS."""
    small = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=16m none /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*small, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode != 0:
        return "skipped: no mount of one's own is allowed here"
    usual = trainer.train(INPUT, 2, ["grid.dp=2"])
    record = read_record(usual.output)
    complaints = expect(usual, DONE)
    if "shared memory" in usual.stderr or not (record["memory/shared"] > 0).all():
        complaints.append(f"usually ranks share memory, and {record['memory/shared']} bytes are mapped of others\n{show(usual)}")
    here = Trainer(trainer.binary, trainer.environment.get("MPIRUN"), trainer.folder)
    here.prefix = small
    words = r"comm\.algorithm {}: over dp: ring, since it takes 6\.\d+ MiB of shared memory of each rank, and /dev/shm has .* left for one"
    small_run = here.train(INPUT, 2, ["grid.dp=2", "output.overwrite=true"])
    complaints += expect(small_run, DONE, words.format("auto"))
    if small_run.exit_code == DONE:
        without = read_record(small_run.output)
        if (without["memory/shared"] != 0).any() or (without["steps/loss"] != record["steps/loss"]).any():
            complaints.append(f"by messages: {without['memory/shared']} bytes of others, losses {without['steps/loss']} and {record['steps/loss']}")
        complaints += check_ledgers(without)
    shutil.rmtree(here.folder / "run-output", ignore_errors=True)
    refused = here.train(INPUT, 2, ["grid.dp=2", "comm.algorithm=shared"])
    complaints += expect(refused, NO_MEMORY, words.format("shared"))
    if refused.output.exists():
        complaints.append(f"refused, yet {refused.output} exists")
    benched = here.run(["bench", "collectives", "--json", here.folder / "rows.json"], 2, seconds=120)
    complaints += expect(benched, DONE)
    return complaints


def algorithms_told(trainer):
    """What carries the collectives of a group, if not what was asked, is said once; what was asked is not."""
    complaints = []
    for asked, said in (("hierarchical", "over dp: shared, since its ranks are on one node"), ("shared", ""),
                        ("shared grid.pretend_nodes=2", "over dp: ring, since its ranks are on several nodes"), ("auto grid.pretend_nodes=2", "")):
        result = trainer.train(INPUT, 2, ["grid.dp=2", "output.overwrite=true", *f"comm.algorithm={asked}".split()])
        told = [line for line in result.stdout.splitlines() if "comm.algorithm" in line]
        due = [f"comm.algorithm {asked.split()[0]}: {said}"] if said else []
        if result.exit_code != DONE or told != due:
            complaints.append(f"comm.algorithm={asked}: told {told}, due {due}\n{show(result)}")
    return complaints


def shortage_is_whole(trainer):
    """67: what is said to be missing is: under a limit that is lower by 50000 KiB it is more by as much, also where nothing is left at all."""
    missing = []
    for kib in (400000, 350000):
        result = limited(trainer, None, kib).train(INPUT, 1)
        said = re.search(r"has none \(what ulimit -v leaves\): ([\d.]+) MiB too little", result.stderr)
        if result.exit_code != NO_MEMORY or not said:
            return [f"ulimit -v {kib}: exit {NO_MEMORY} with what is missing was due\n{show(result)}"]
        missing.append(float(said[1]))
    return [] if abs(missing[1] - missing[0] - 50000 / 1024) < 5 else [f"{missing} MiB are said to be missing"]


def tier_that_is_too_large(trainer):
    """67: where host memory alone is too little it is spoken of, with what takes it, and not the device memory that is little."""
    blocks = ["offload.optimizer=nvme", f"offload.nvme_path={trainer.folder}", "offload.block_size=1GiB", "offload.queue_depth=4096"]
    return expect(trainer.train(INPUT, 2, blocks), NO_MEMORY, r"needs 4\.00 TiB of host memory",
                  r"4\.00 TiB: offload\.block_size times offload\.queue_depth")


CHECKS = [("67 advice", advice_when_it_does_not_fit), ("67 one rank under a limit", one_rank_under_a_limit),
          ("refused while compiling", refused_while_compiling), ("no room for the first thread", no_room_for_the_first_thread),
          ("67 resident memory", resident_memory),
          ("no room for shared memory", no_room_for_shared_memory), ("algorithms told", algorithms_told),
          ("67 what is missing", shortage_is_whole), ("67 the tier that is too large", tier_that_is_too_large)]

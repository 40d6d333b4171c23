"""Faults that users of such systems reported, as whole runs: each check is one or more runs whose records must agree.

The numbers are those of the reports. A check is a function of a Lab that returns complaints; its first line says what it holds.
"""
import functools
import itertools
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from trainer import Trainer, check_ledgers, h5py, numpy, parse_arguments, read_record, report, show, write_counting_text  # noqa: E402

import loss_scale  # noqa: E402

MODEL = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "ffn_hidden_size": 64, "vocab_size": 256, "seq_length": 32}


class Lab:
    """Runs of one small model on texts of one folder."""

    def __init__(self, trainer, folder):
        self.trainer, self.folder = trainer, pathlib.Path(folder)
        write_counting_text(self.folder / "counting.txt")

    def run(self, ranks=1, changes="", text="counting.txt", model=(), environment=(), seconds=120):
        """The record and stdout of a run; raises RuntimeError with what it printed if it failed."""
        source = {"model": MODEL | dict(model), "train": {"global_batch_size": 8, "micro_batch_size": 1, "steps": 4},
                  "optimizer": {"lr": 1e-3, "min_lr": 0, "lr_schedule": "constant", "warmup_steps": 0}, "device": {"threads": 1},
                  "data": {"format": "text", "train": [str(self.folder / text)]}}
        result = self.trainer.train(source, ranks, [*changes.split(), "output.overwrite=true"], seconds, environment)
        if result.exit_code != 0:
            raise RuntimeError(show(result))
        record = read_record(result.output)
        if broken := check_ledgers(record):
            raise RuntimeError("\n".join([f"{ranks} ranks, {changes}:", *broken]))
        return record, result.stdout


def differences(name, ours, theirs, allowed):
    worst = float(numpy.max(numpy.abs(ours - theirs) / numpy.maximum(numpy.abs(theirs), 1e-30)))
    return [] if worst <= allowed else [f"{name}: relative difference {worst:.2e}, allowed {allowed:.0e}: {ours} and {theirs}"]


def losses(ours, theirs, allowed=1e-5):
    return [c for name in ("loss", "grad_norm") for c in differences(name, ours[f"steps/{name}"], theirs[f"steps/{name}"], allowed)]


def rows_that_count_differently(lab):
    """1: the loss is the mean over counted tokens, however rows are spread: one counts none, one ten, the others nearly all."""
    rows = ["\n" * 32, "\n" * 21 + "0123456789\n"] + ["abcdefgh ijklmno pqrstuv wxyz 12"] * 8
    (lab.folder / "ragged.txt").write_text("".join(rows))
    documents = "data.end_of_document=10 data.mask_across_documents=true data.shuffle=false"
    reference, _ = lab.run(1, f"{documents} train.micro_batch_size=8", "ragged.txt")
    complaints = [] if reference["steps/tokens"][0] < 8 * 32 - 32 - 10 else ["the rows count too many tokens for this case"]
    for ranks, changes in ((1, "train.micro_batch_size=1"), (1, "train.micro_batch_size=2"), (2, "grid.dp=2"), (4, "grid.dp=4"), (2, "grid.sp=2"),
                           (2, "grid.pp=2")):
        record, _ = lab.run(ranks, f"{documents} {changes}", "ragged.txt")
        complaints += losses(record, reference) + differences("tokens", record["steps/tokens"], reference["steps/tokens"], 0)
    return complaints


def a_batch_that_counts_nothing(lab):
    """1: a global batch without a counted token has loss 0 and no gradient, and divides by nothing."""
    (lab.folder / "empty.txt").write_text("\n" * 600)
    record, _ = lab.run(1, "data.end_of_document=10 data.mask_across_documents=true", "empty.txt")
    if record["steps/loss"].any() or record["steps/grad_norm"].any():
        return [f"loss {record['steps/loss']}, norm {record['steps/grad_norm']}"]
    return []


def one_line_per_step(lab):
    """4: with the loss on another stage and four ranks, each step is reported once, with the serial loss."""
    reference, _ = lab.run()
    record, stdout = lab.run(4, "grid.pp=2 grid.dp=2")
    lines = [line for line in stdout.splitlines() if line.startswith("step")]
    return losses(record, reference) + ([] if len(lines) == 4 else [f"{len(lines)} lines for 4 steps"])


def accumulation_in_fp32(lab):
    """9: with bf16 activations and 64 micro-batches the norm stays within 1 % of fp32's, since gradients are summed in fp32."""
    changes = "train.global_batch_size=64 train.micro_batch_size=1 train.steps=2"
    reference, _ = lab.run(1, changes)
    record, _ = lab.run(1, f"{changes} train.precision=bf16")
    return differences("grad_norm", record["steps/grad_norm"], reference["steps/grad_norm"], 0.01)


def norm_before_clipping(lab):
    """11: grad_norm is the norm before clipping, beside the factor; with clip 0 nothing is clipped."""
    clipped, _ = lab.run(1, "train.clip_grad=0.5")
    free, _ = lab.run(1, "train.clip_grad=0")
    complaints = differences("grad_norm of step 1", clipped["steps/grad_norm"][:1], free["steps/grad_norm"][:1], 0)
    complaints += differences("clip_factor", clipped["steps/clip_factor"], 0.5 / (clipped["steps/grad_norm"] + 1e-6), 1e-6)
    return complaints + differences("clip_factor without clipping", free["steps/clip_factor"], numpy.ones(4), 0)


def bf16_weights_move(lab):
    """15: fp32 masters keep what a bf16 weight cannot take; 100 small steps lower the loss as fp32's do."""
    changes = "train.steps=100 optimizer.lr=1e-4 output.log_interval=100"
    reference, _ = lab.run(1, changes)
    record, _ = lab.run(1, f"{changes} train.precision=bf16")
    return differences("last loss", record["steps/loss"][-1:], reference["steps/loss"][-1:], 0.02)


def decay_spares_norms(lab):
    """18: one step of decay by half makes of every matrix what half its initial spread would have, and leaves norms at 1, on every grid."""
    still = "train.steps=2 optimizer.lr=1e-9 train.clip_grad=0"
    complaints = []
    for kind in ("model.normalization=layernorm", "model.normalization=rmsnorm model.tie_word_embeddings=false"):
        halved, _ = lab.run(1, f"{kind} {still} optimizer.weight_decay=0 model.init_std=0.01")
        serial, _ = lab.run(1, f"{kind} {still} optimizer.weight_decay=5e8")
        complaints += [c for name in ("loss", "grad_norm")
                       for c in differences(f"{name} of step 2", serial[f"steps/{name}"][1:], halved[f"steps/{name}"][1:], 1e-5)]
        for ranks, grid in ((2, "grid.tp=2"), (2, "grid.dp=2"), (4, "grid.dp=2 grid.pp=2 comm.bucket_size=1")):
            record, _ = lab.run(ranks, f"{kind} {still} optimizer.weight_decay=5e8 {grid}")
            complaints += losses(record, serial)
    return complaints


def fewer_elements_than_ranks(lab):
    """19: one layer of width 8 on eight ranks, and a global batch of 120 on five."""
    tiny = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "ffn_hidden_size": 8}
    reference, _ = lab.run(1, "", model=tiny)
    record, _ = lab.run(8, "grid.dp=8", model=tiny)
    odd, _ = lab.run(1, "train.global_batch_size=120 train.micro_batch_size=24", model=tiny)
    five, _ = lab.run(5, "train.global_batch_size=120 train.micro_batch_size=24 grid.dp=5", model=tiny)
    return losses(record, reference) + losses(five, odd)


def large_stage_messages(lab):
    """25: activations far above the eager limit, and no eager messages at all: interleaved pipelines of 2 and 4 finish."""
    write_counting_text(lab.folder / "long.txt", lines=4000)
    interleaved = "pipeline.schedule=interleaved pipeline.virtual_stages=2"
    for stages in (2, 4):  # 256 x 128 x 128 fp32: each message between stages has 16 MiB, for little arithmetic
        big = {"num_layers": 2 * stages, "hidden_size": 128, "num_attention_heads": 4, "ffn_hidden_size": 64, "seq_length": 128, "vocab_size": 256}
        lab.run(stages, f"grid.pp={stages} {interleaved} train.global_batch_size={256 * stages} train.micro_batch_size=256 train.steps=1", "long.txt",
                big, seconds=300)
    none = {"OMPI_MCA_btl_vader_eager_limit": "64", "OMPI_MCA_btl_self_eager_limit": "64", "MPIR_CVAR_CH4_SHM_POSIX_EAGER": "0"}
    reference, _ = lab.run(2, f"grid.pp=2 {interleaved}", model={"num_layers": 4})
    record, _ = lab.run(2, f"grid.pp=2 {interleaved}", model={"num_layers": 4}, environment=none)
    lab.run(4, f"grid.pp=4 {interleaved}", model={"num_layers": 8}, environment=none)
    return losses(record, reference, 0)


def evaluations(lab, changes, runs):
    """Complaints of the runs (ranks, further changes, allowed difference) that do not evaluate to what the serial run does."""
    reference, _ = lab.run(1, changes)
    complaints = []
    for ranks, further, allowed in runs:
        record, _ = lab.run(ranks, f"{changes} {further}")
        complaints += differences(f"evaluation with {further}", record["evaluation/loss"], reference["evaluation/loss"], allowed)
    return complaints


def an_optimizer_elsewhere(lab):
    """13: fifty steps with two groups of parameters (decayed or not) have the same bits wherever the optimizer is, on any number of threads."""
    changes = "train.steps=50 optimizer.weight_decay=0.1"
    reference, _ = lab.run(1, changes)
    complaints = []
    for tier in ("none", "cpu", f"nvme offload.nvme_path={lab.folder}"):
        for threads in (1, 3, 4):
            record, _ = lab.run(1, f"{changes} offload.optimizer={tier} device.threads={threads}")
            complaints += [f"{tier}, {threads} threads: {c}" for c in losses(record, reference, 0)]
    return complaints


def what_recompute_needs_under_zero_3(lab):
    """39: stage 3, recompute, prefetch, activations elsewhere, frozen weights or none: the numbers of one rank, in the memory that was planned."""
    complaints = []
    for model in ({}, {"lora": {"rank": 4}}):
        reference, _ = lab.run(1, model=model)
        for granularity, prefetch, activations in itertools.product(("selective", "full"), (0, 1), ("none", "cpu")):
            changes = f"recompute.granularity={granularity} sharding.prefetch={prefetch} offload.activations={activations}"
            record, _ = lab.run(2, f"grid.dp=2 sharding.zero_stage=3 {changes}", model=model)  # holds the record to its plan
            complaints += [f"{model} {changes}: {c}" for c in losses(record, reference)]
    return complaints


def a_trace_tells_memory(lab):
    """The memory of step 2 over time, in a whole run's trace: it rises to what was planned on every rank and tier, when the ops named begin."""
    record, _ = lab.run(4, f"grid.dp=2 grid.pp=2 offload.activations=cpu offload.optimizer=nvme offload.nvme_path={lab.folder} output.trace=true")
    with h5py.File(lab.folder / "run-output" / "trace.h5", "r") as file:
        trace, memory = ({name: item[()] for name, item in file[group].items()} for group in ("trace", "memory"))
    complaints = []
    if sorted(set(memory["rank"])) != [0, 1, 2, 3] or not set(memory["op"]) <= set(range(len(trace["ops"]))):
        return [f"the ranks are {set(memory['rank'])}, the ops {memory['op'].min()} to {memory['op'].max()} of {len(trace['ops'])}"]
    for rank in range(4):
        computed = (trace["rank"] == rank) & (trace["step"] == 2) & (trace["queue"] == 0)
        begins = dict(zip(trace["op"][computed].tolist(), trace["begin"][computed].tolist()))
        end = trace["end"][(trace["rank"] == rank) & (trace["step"] == 2)].max()
        for tier in range(len(memory["tiers"])):
            of_both = (memory["rank"] == rank) & (memory["tier"] == tier)
            ops, times, books = memory["op"][of_both], memory["time"][of_both], memory["bytes"][of_both]
            planned = record["memory/predicted_peak"][rank, tier]
            if not numpy.array_equal(books[books.sum(axis=1).argmax()], planned):
                complaints.append(f"rank {rank}, tier {tier}: the trace rises to {books[books.sum(axis=1).argmax()]}, planned were {planned}")
            if (numpy.diff(times) < 0).any() or (numpy.diff(ops) <= 0).any():
                complaints.append(f"rank {rank}, tier {tier}: time runs backwards: {times}, ops {ops}")
            # an op that computes nothing begins nowhere: then it is the next one that does, or the step's end
            due = [min((b for op, b in begins.items() if op >= at), default=end) for at in ops]
            if not numpy.array_equal(times, due):
                complaints.append(f"rank {rank}, tier {tier}: changes at {times}, but the ops begin at {due}")
    return complaints


def recompute_saves(lab):
    """40: each granularity needs less activation memory than the one before, as measured."""
    activations = [lab.run(1, f"recompute.granularity={granularity}", model={"num_layers": 6})[0]["memory/measured_peak"][0, 0, 3]
                   for granularity in ("none", "selective", "full")]
    return [] if activations[0] > activations[1] > activations[2] else [f"activations of none, selective, full: {activations} bytes"]


def held_out_sample_of_one(lab):
    """63: an evaluation set of one sample on four ranks ends, with the serial loss."""
    (lab.folder / "held.txt").write_text("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14")
    grids = ("grid.dp=4", "grid.pp=2 grid.dp=2", "grid.tp=2 grid.sp=2")
    return evaluations(lab, f"data.valid=[{lab.folder / 'held.txt'}] evaluation.interval=2", [(4, grid, 1e-5) for grid in grids])


def evaluation_without_dropout(lab):
    """Evaluation drops nothing: before the first update counts, it is the loss of the same weights without dropout."""
    changes = "train.steps=1 optimizer.lr=1e-30 data.split=80,20 evaluation.interval=1"
    return evaluations(lab, changes, [(1, "model.hidden_dropout=0.3 model.attention_dropout=0.3", 0)])


def throughput(lab):
    """66: tokens are those of the global batch, counted once, on every grid; model FLOPs do not depend on the grid."""
    reference, _ = lab.run()
    complaints = []
    for grid in ("grid.tp=2 grid.pp=2", "grid.dp=2 grid.sp=2"):
        record, _ = lab.run(4, grid)
        complaints += differences("tokens", record["steps/tokens"], numpy.full(4, 8 * 32), 0)
        complaints += differences("model FLOPs", record["flops/model"], reference["flops/model"], 0)
    return complaints


CHECKS = (rows_that_count_differently, a_batch_that_counts_nothing, one_line_per_step, accumulation_in_fp32, norm_before_clipping,
          bf16_weights_move, decay_spares_norms, fewer_elements_than_ranks, large_stage_messages, held_out_sample_of_one,
          evaluation_without_dropout, throughput, an_optimizer_elsewhere, what_recompute_needs_under_zero_3, recompute_saves, a_trace_tells_memory,
          *loss_scale.CHECKS)


def main():
    arguments = parse_arguments(__doc__.splitlines()[0])
    with tempfile.TemporaryDirectory(prefix="field-") as folder:
        lab = Lab(Trainer(arguments.binary, arguments.mpirun, folder), folder)

        def run(check):
            return check(lab), check.__doc__.splitlines()[0]

        return report(arguments, [(check.__name__, functools.partial(run, check)) for check in CHECKS])


if __name__ == "__main__":
    sys.exit(main())

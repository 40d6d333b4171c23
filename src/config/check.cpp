#include "config/check.hpp"

#include "base/error.hpp"
#include "config/aliases.hpp"
#include "config/compression.hpp"
#include "config/lora.hpp"
#include "config/names.hpp"
#include "config/numbers.hpp"
#include "config/paths.hpp"
#include "config/rules.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace quadrille::input {

namespace {

using fmt::format;

void check_model(const Config& c, Rules& rules) {
    const ModelConfig& m = c.model;
    rules.expect({"model.num_key_value_heads", "model.num_attention_heads"}, m.num_attention_heads % m.num_key_value_heads == 0,
                 format("found num_key_value_heads {}, which do not divide num_attention_heads {}", m.num_key_value_heads,
                        m.num_attention_heads));
    rules.expect({"model.head_dim", "model.position_embedding", "model.num_attention_heads", "model.hidden_size"},
                 m.position_embedding != PositionEmbedding::rope || m.head_dim % 2 == 0,
                 format("found position_embedding rope with head_dim {}, allowed: an even head_dim, since rotations turn pairs",
                        m.head_dim));
    // In floating point, for the product need not fit; more would not fit the byte counts either.
    const double heads = static_cast<double>(m.num_attention_heads + m.num_key_value_heads) * static_cast<double>(m.head_dim);
    const double mlp = (m.activation == Activation::swiglu ? 3.0 : 2.0) * static_cast<double>(m.ffn_hidden_size);
    const double parameters = static_cast<double>(m.hidden_size) *
                              (static_cast<double>(m.num_layers) * (2 * heads + mlp) + 2.0 * static_cast<double>(m.vocab_size));
    constexpr double most = 1e15;
    rules.expect({"model.num_layers", "model.hidden_size", "model.ffn_hidden_size", "model.vocab_size", "model.head_dim"},
                 parameters <= most, format("found a model of {:.3g} parameters, allowed: up to {:.3g}", parameters, most));
}

// The last parts of the names of a block's matrices: attention.q, ...
std::string names_in_block(const ModelConfig& m) {
    std::string names;
    for (const LinearMatrix& x : linear_matrices(m, 0)) names += (names.empty() ? "" : ", ") + x.name.substr(std::string("layers.0.").size());
    return names;
}

void check_lora(const Config& c, const Settings& settings, Rules& rules) {
    const LoraConfig& l = c.lora;
    if (!l.on()) {
        const char* alone = "found a value without model.lora.rank, allowed: a rank beside it, or neither";
        rules.expect({"model.lora.alpha", "model.lora.rank"}, !settings.given("model.lora.alpha"), alone);
        rules.expect({"model.lora.targets", "model.lora.rank"}, l.targets == LoraConfig{}.targets, alone);  // the default, as it is printed, is none
        return;
    }
    rules.expect({"model.lora.targets"}, !l.targets.empty(), "found no target, allowed: all, or parts of the names of matrices");
    std::optional<LinearMatrix> least;  // the target whose rank is full first
    for (const std::string& target : l.targets) {
        bool known = false;
        for (const std::int64_t layer : layers_told_apart(target, c.model.num_layers))
            for (const LinearMatrix& x : linear_matrices(c.model, layer)) {
                if (!names_matrix(target, x.name)) continue;
                known = true;
                if (!least || std::min(x.in, x.out) < std::min(least->in, least->out)) least = x;
            }
        if (!known)
            rules.expect({"model.lora.targets", "model.num_layers", "model.activation"}, false,
                         format("found '{}', which no matrix of this model is called, allowed: all, or parts of the names layers.0 to layers.{}, "
                                "each with {}{}",
                                target, c.model.num_layers - 1, names_in_block(c.model), target_hint(target)));
    }
    if (least)
        rules.expect({"model.lora.rank", "model.lora.targets", "model.hidden_size"}, l.rank <= std::min(least->in, least->out),
                     format("found rank {}, allowed: up to {}, the full rank of {} [{}, {}]", l.rank, std::min(least->in, least->out), least->name,
                            least->out, least->in));
}

void check_tensor_parallel(const Config& c, Rules& rules) {
    const ModelConfig& m = c.model;
    const std::int64_t tp = c.grid.tp, heads = m.num_attention_heads, kv = m.num_key_value_heads;
    const bool heads_divide = rules.expect({"grid.tp", "model.num_attention_heads"}, heads % tp == 0,
                                           format("found tp {}, which does not divide num_attention_heads {}", tp, heads));
    rules.expect({"grid.tp", "model.num_key_value_heads", "model.num_attention_heads"},
                 !heads_divide || kv % tp == 0 || tp % kv == 0,
                 format("found tp {} with num_key_value_heads {}, allowed: one divides the other", tp, kv));
    rules.expect({"grid.tp", "model.ffn_hidden_size", "model.hidden_size"}, m.ffn_hidden_size % tp == 0,
                 format("found tp {}, which does not divide ffn_hidden_size {}", tp, m.ffn_hidden_size));
}

void check_sequence_parallel(const Config& c, Rules& rules) {
    const std::int64_t sp = c.grid.sp, tp = c.grid.tp, seq = c.model.seq_length, heads = c.model.num_attention_heads;
    const bool zigzag = sp > 1 && c.sequence.layout == SequenceLayout::zigzag,
               ulysses = c.sequence.method == SequenceMethod::ulysses;
    const bool over_tp = c.tensor.sequence_parallel && tp > 1;
    const __int128 parts = static_cast<__int128>(sp) * (zigzag ? 2 : 1) * (over_tp ? tp : 1);
    const std::string factors =
        format("sp {}{}{} = {}", sp, zigzag ? " x 2 (zigzag)" : "",
               over_tp ? format(" x tp {} (tensor.sequence_parallel)", tp) : "", static_cast<double>(parts));
    const std::string sentence = format("found seq_length {}, which is not a multiple of {}", seq, factors);
    rules.expect({"model.seq_length", "grid.sp", "grid.tp", "sequence.layout", "tensor.sequence_parallel"}, seq % parts == 0,
                 sentence);
    rules.expect({"sequence.layout", "sequence.method"}, !(ulysses && c.sequence.layout == SequenceLayout::zigzag),
                 "found zigzag with method ulysses, which has no layout, allowed: leave it out");
    rules.expect({"sequence.method", "grid.sp", "grid.tp", "model.num_attention_heads"}, !ulysses || heads % (tp * sp) == 0,
                 format("found ulysses with num_attention_heads {}, which are not a multiple of tp {} x sp {} = {}; "
                        "sequence.method=ring has no such rule",
                        heads, tp, sp, tp * sp));
}

void check_pipeline(const Config& c, Rules& rules) {
    const PipelineConfig& p = c.pipeline;
    const std::int64_t layers = c.model.num_layers, pp = c.grid.pp, v = p.virtual_stages, chunks = pp * v;
    const std::int64_t micro_batches = c.train.gradient_accumulation_steps;
    rules.expect(
        {"grid.pp", "pipeline.virtual_stages", "model.num_layers"}, layers >= chunks,
        format("found num_layers {}, allowed: at least pp {} x virtual_stages {} = {}, one for each chunk", layers, pp, v, chunks));
    const bool interleaved = p.schedule == Schedule::interleaved;
    rules.expect({"pipeline.virtual_stages", "pipeline.schedule"}, !interleaved || v >= 2,
                 format("found interleaved with virtual_stages {}, allowed: 2 or more", v));
    rules.expect(
        {"train.gradient_accumulation_steps", "train.global_batch_size", "train.micro_batch_size", "pipeline.schedule"},
        !interleaved || micro_batches % pp == 0,
        format("found interleaved with gradient_accumulation_steps {}, which are not a multiple of pp {}", micro_batches, pp));
    rules.expect(
        {"pipeline.virtual_stages", "pipeline.schedule"}, interleaved || p.schedule == Schedule::gpipe || v == 1,
        format("found virtual_stages {} with schedule {}, allowed: 1, or schedule interleaved or gpipe", v, spelling(p.schedule)));
    if (p.layers_per_stage.empty()) return;
    const auto counts = static_cast<std::int64_t>(p.layers_per_stage.size());
    const std::int64_t sum = std::accumulate(p.layers_per_stage.begin(), p.layers_per_stage.end(), std::int64_t{0});
    rules.expect({"pipeline.layers_per_stage", "grid.pp", "pipeline.virtual_stages"}, counts == chunks,
                 format("found {} counts, allowed: pp {} x virtual_stages {} = {}", counts, pp, v, chunks));
    rules.expect({"pipeline.layers_per_stage", "model.num_layers"}, sum == layers,
                 format("found counts that sum to {}, allowed: num_layers {}", sum, layers));
}

void check_sharding(const Config& c, Rules& rules) {
    rules.expect({"sharding.shard_size", "grid.dp"}, c.grid.dp % c.sharding.shard_size == 0,
                 format("found shard_size {}, which does not divide dp {}", c.sharding.shard_size, c.grid.dp));
}

void check_offload(const Config& c, Rules& rules) {
    rules.expect({"offload.gradients"}, c.offload.gradients != OffloadTo::nvme, "found nvme, allowed: none, cpu");
    const auto on_disk = [](OffloadTo tier) { return tier == OffloadTo::nvme; };
    const bool any = on_disk(c.offload.optimizer) || on_disk(c.offload.parameters) || on_disk(c.offload.activations);
    rules.expect({"offload.nvme_path", "offload.optimizer", "offload.parameters", "offload.activations"}, !any || !c.offload.nvme_path.empty(),
                 "found nvme without offload.nvme_path, allowed: the directory of a local disk");
}

void check_compression(const Config& c, Rules& rules) {
    const CompressionConfig& x = c.compression;
    // A level is the largest element / (2^(bits-1) - 1), and a remainder up to that: with one level it would grow without end.
    rules.expect({"comm.compression.bits", "comm.compression.method", "comm.compression.error_feedback"},
                 x.method != CompressionMethod::qsgd || !x.error_feedback || x.bits >= 3,
                 format("found bits {} with error_feedback, allowed: 3 to 8, or error_feedback false", x.bits));
    // Ranks of tp hold norms and some biases alike, and each sums its own copy. What a block's neighbours decide (its scale, its largest elements)
    // differs between them, and so would the copies.
    const bool by_block = x.on() && x.method != CompressionMethod::bf16;
    rules.expect({"comm.compression.method", "grid.tp"}, !by_block || c.grid.tp == 1,
                 format("found {} with tp {}, allowed: bf16, or tp 1, since parameters that ranks of tp hold alike must be sent alike",
                        spelling(x.method), c.grid.tp));
    for (const std::string& part : x.exclude)
        rules.expect({"comm.compression.exclude", "model.num_layers"}, names_unit(c, part),
                     format("found '{}', which no unit of this model is called, allowed: all, embedding, head, or parts of the names layers.0 to "
                            "layers.{}{}",
                            part, c.model.num_layers - 1, c.lora.on() ? ", each also with .lora" : ""));
}

void check_staleness(const Config& c, Rules& rules) {
    if (c.comm.staleness == 0) return;
    rules.expect({"comm.staleness", "sharding.zero_stage"}, c.sharding.zero_stage <= 1,
                 format("found staleness 1 with zero_stage {}, allowed: 0 or 1, since from 2 on micro-batches are reduced one by one within the step",
                        c.sharding.zero_stage));
    rules.expect({"comm.staleness", "train.precision"}, c.train.precision != Precision::fp16,
                 "found staleness 1 with precision fp16, allowed: fp32, bf16, since a stale gradient is of another loss scale");
    rules.expect({"comm.staleness", "offload.gradients"}, c.offload.gradients == OffloadTo::none,
                 "found staleness 1 with offloaded gradients, allowed: offload.gradients none");
    rules.expect({"comm.staleness", "comm.compression.method"}, !c.compression.on(),
                 format("found staleness 1 with compression {}, allowed: one of them", spelling(c.compression.method)));
}

void check_training(const Config& c, Rules& rules) {
    const OptimizerConfig& o = c.optimizer;
    rules.expect({"optimizer.min_lr", "optimizer.lr"}, o.min_lr <= o.lr,
                 format("found min_lr {}, allowed: at most lr {}", number_text(o.min_lr), number_text(o.lr)));
    const bool decays = c.train.steps > o.warmup_steps;  // a run that ends in its warm-up never does
    const bool to_step = o.lr_schedule == LrSchedule::linear || o.lr_schedule == LrSchedule::cosine;
    rules.expect({"optimizer.decay_steps", "optimizer.warmup_steps"}, !decays || !to_step || o.decay_steps > o.warmup_steps,
                 format("found decay_steps {} with warmup_steps {}, allowed: more, for {} decays from the warm-up to that step",
                        o.decay_steps, o.warmup_steps, spelling(o.lr_schedule)));
    rules.expect({"optimizer.decay_steps", "optimizer.warmup_steps", "train.steps"},
                 !decays || o.lr_schedule != LrSchedule::wsd || o.decay_steps <= c.train.steps - o.warmup_steps,
                 format("found warmup_steps {} + decay_steps {}, allowed: up to steps {} for wsd", o.warmup_steps, o.decay_steps,
                        c.train.steps));
    rules.expect({"train.gradient_dtype", "train.precision"},
                 c.train.gradient_dtype == Precision::fp32 || c.train.gradient_dtype == c.train.precision,
                 format("found gradient_dtype {0} with precision {1}, allowed: fp32, or precision {0}", spelling(c.train.gradient_dtype),
                        spelling(c.train.precision)));
    const double tokens = static_cast<double>(c.train.global_batch_size) * static_cast<double>(c.model.seq_length);
    constexpr double most = 1e15;
    rules.expect({"train.global_batch_size", "train.micro_batch_size", "model.seq_length"}, tokens <= most,
                 format("found {:.3g} tokens per step, allowed: up to {:.3g}", tokens, most));
    constexpr std::int64_t most_passes = 65536;  // the step's program lists every pass; compiling GPT-2 124M takes 0.2 MB for each
    rules.expect({"train.gradient_accumulation_steps", "train.global_batch_size", "train.micro_batch_size"},
                 c.train.gradient_accumulation_steps <= most_passes,
                 format("found {} micro-batches per rank and step, allowed: up to {}; a larger micro_batch_size or more ranks make fewer",
                        c.train.gradient_accumulation_steps, most_passes));
}

void check_loss_scale(const Config& c, Rules& rules) {
    const LossScaleConfig& s = c.loss_scale;
    for (const auto& [key, scale] : {std::pair{"loss_scale.initial", s.initial}, {"loss_scale.minimum", s.minimum}}) {
        const double below = std::exp2(std::floor(std::log2(scale)));
        rules.expect({key}, scale == below,
                     format("found {}, allowed: powers of two, such as {} or {}", number_text(scale), number_text(below), number_text(2 * below)));
    }
    rules.expect({"loss_scale.initial", "loss_scale.minimum"}, s.initial >= s.minimum,
                 format("found initial {}, allowed: at least minimum {}", number_text(s.initial), number_text(s.minimum)));
}

void check_data(const Config& c, const Settings& settings, Rules& rules) {
    const DataConfig& d = c.data;
    const std::int64_t vocab = c.model.vocab_size;
    const bool synthetic = d.format == DataFormat::synthetic;
    // Paths that were written and not found have their own problems.
    const auto patterns = [&](const char* key) {
        return settings.given(key) ? std::get<std::vector<std::string>>(settings.value(key)).size() : std::size_t{0};
    };
    rules.expect({"data.train", "data.format"}, synthetic || !settings.written("data.train") || patterns("data.train") > 0,
                 format("found no path, allowed: at least one for format {}", spelling(d.format)));
    rules.expect({"data.end_of_document", "model.vocab_size"}, !d.end_of_document || *d.end_of_document < vocab,
                 format("found {}, allowed: a token id below vocab_size {}", d.end_of_document.value_or(0), vocab));
    // Files of text are documents, and Megatron's index has theirs.
    const bool has_documents = d.end_of_document.has_value() || d.format == DataFormat::text || d.format == DataFormat::megatron;
    rules.expect(
        {"data.mask_across_documents", "data.end_of_document"}, !d.mask_across_documents || has_documents,
        format("found true without data.end_of_document, allowed for format {}: false, or the id of the token that ends a document",
               spelling(d.format)));
    // What a plan has not found may yet be many files.
    const bool one_text = d.format == DataFormat::text && d.train.size() == 1 && !is_glob(d.train[0]);
    rules.expect({"data.mask_across_documents", "data.end_of_document", "data.train"},
                 !d.mask_across_documents || d.end_of_document.has_value() || !one_text,
                 "found true without data.end_of_document, but a text of one file is one document, allowed: false, several files, or the id of the "
                 "token that ends a document");
    rules.expect({"data.split", "data.valid"}, d.split.empty() || synthetic || patterns("data.valid") == 0,
                 "found a split beside data.valid, allowed: one of them says what is held out");
    const bool held_out = synthetic || patterns("data.valid") > 0 || (d.split.size() > 1 && d.split[1] > 0);
    rules.expect({"evaluation.interval", "data.valid", "data.split"}, c.evaluation.interval == 0 || held_out,
                 format("found {}, but nothing is held out, allowed: 0, or data.valid, or a data.split of two parts or more",
                        c.evaluation.interval));
}

}  // namespace

void check(const Config& config, const Settings& settings, Problems& problems) {
    Rules rules(settings, problems);
    check_model(config, rules);
    check_lora(config, settings, rules);
    check_tensor_parallel(config, rules);
    check_sequence_parallel(config, rules);
    check_pipeline(config, rules);
    check_sharding(config, rules);
    check_offload(config, rules);
    check_compression(config, rules);
    check_staleness(config, rules);
    check_training(config, rules);
    check_loss_scale(config, rules);
    check_data(config, settings, rules);
}

}  // namespace quadrille::input

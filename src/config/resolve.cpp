#include "config/resolve.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/compression.hpp"
#include "config/numbers.hpp"
#include "config/rules.hpp"

#include <algorithm>
#include <cmath>

namespace quadrille::input {

namespace {

void resolve_model(Config& config, const Settings& settings, Rules& rules) {
    ModelConfig& m = config.model;
    if (!settings.given("model.num_key_value_heads")) m.num_key_value_heads = m.num_attention_heads;
    if (!settings.given("model.head_dim")) {
        rules.expect({"model.num_attention_heads", "model.hidden_size"}, m.hidden_size % m.num_attention_heads == 0,
                     fmt::format("found num_attention_heads {}, which do not divide hidden_size {}, allowed: divisors of it, or a "
                                 "head_dim of its own",
                                 m.num_attention_heads, m.hidden_size));
        m.head_dim = std::max<std::int64_t>(1, m.hidden_size / m.num_attention_heads);
    }
    if (!settings.given("model.ffn_hidden_size")) {
        const std::int64_t h = m.hidden_size;
        m.ffn_hidden_size = m.activation == Activation::swiglu ? (8 * h + 767) / 768 * 256 : 4 * h;
    }
    if (!settings.given("model.lora.alpha")) config.lora.alpha = static_cast<double>(config.lora.rank);
}

// The product of the axes, or −1 where even 64 bits do not hold it.
std::int64_t product(std::initializer_list<int> axes) {
    std::int64_t result = 1;
    for (const int extent : axes)
        if (__builtin_mul_overflow(result, std::int64_t{extent}, &result)) return -1;
    return result;
}

void resolve_grid(Config& config, const Settings& settings, const Job& job, Rules& rules) {
    GridConfig& g = config.grid;
    const char* what = job.planning ? "--ranks is" : "MPI has";
    const char* unit = job.planning ? "" : " ranks";
    const std::int64_t others = product({g.tp, g.pp, g.sp});
    if (!settings.given("grid.dp")) {
        g.dp = 1;
        if (job.ranks > 0 && others > 0 &&
            rules.expect({"grid.tp", "grid.pp", "grid.sp"}, job.ranks % others == 0,
                         fmt::format("tp·pp·sp is {} x {} x {} = {} but {} {}{}, allowed: a divisor of {}; or a multiple of {} ranks, such as {}",
                                     g.tp, g.pp, g.sp, others, what, job.ranks, unit, job.ranks, others, (job.ranks / others + 1) * others)))
            g.dp = static_cast<int>(std::max<std::int64_t>(1, job.ranks / others));
    } else if (job.ranks > 0) {
        const std::int64_t all = product({g.dp, g.tp, g.pp, g.sp});
        rules.expect(
            {"grid.dp", "grid.tp", "grid.pp", "grid.sp"}, all == job.ranks || all < 0,
            fmt::format("dp·tp·pp·sp is {} x {} x {} x {} = {} but {} {}{}", g.dp, g.tp, g.pp, g.sp, all, what, job.ranks, unit));
    }
    const std::int64_t all = product({g.dp, g.tp, g.pp, g.sp});
    constexpr std::int64_t most = 2147483647;
    rules.expect({"grid.dp", "grid.tp", "grid.pp", "grid.sp"}, all > 0 && all <= most,
                 fmt::format("dp·tp·pp·sp is {} x {} x {} x {}, allowed: up to {} ranks", g.dp, g.tp, g.pp, g.sp, most));
}

void resolve_optimizer(Config& config, const Settings& settings) {
    OptimizerConfig& o = config.optimizer;
    const std::int64_t steps = config.train.steps;
    if (!settings.given("optimizer.min_lr") && o.min_lr > o.lr) o.min_lr = o.lr / 10;
    if (settings.given("optimizer.decay_steps")) return;
    o.decay_steps =
        o.lr_schedule == LrSchedule::wsd ? std::max<std::int64_t>(1, std::min(steps / 10, steps - o.warmup_steps)) : steps;
}

void resolve_device(Config& config, const Settings& settings, const Job& job, Rules& rules, std::vector<std::string>& warnings) {
    DeviceConfig& d = config.device;
    const int share = job.cpus / std::max(1, job.cpu_sharers);
    if (!settings.given("device.threads")) d.threads = std::max(1, share);
    const std::int64_t threads = std::int64_t{d.threads} * job.cpu_sharers;
    if (!job.planning && job.cpus > 0 && threads > job.cpus)
        warnings.push_back(fmt::format("{} x device.threads {} = {} but {} {} CPUs", format_number_of(job.cpu_sharers, "rank"), d.threads, threads,
                                       job.cpu_sharers == 1 ? "it has" : "they share", job.cpus));
    if (job.planning || job.memory_available == 0) return;
    const std::int64_t memory = job.memory_available / std::max(1, job.ranks_per_node);
    if (!settings.given("device.memory_limit")) d.memory_limit = std::max<std::int64_t>(1, memory - d.host_memory_limit);
    rules.expect({"device.host_memory_limit", "device.memory_limit"},
                 d.host_memory_limit == 0 || d.host_memory_limit <= memory - d.memory_limit,
                 fmt::format("memory_limit {} + host_memory_limit {} are more than the {} that the node has for each of {} ranks",
                             bytes_text(d.memory_limit), bytes_text(d.host_memory_limit), bytes_text(memory), job.ranks_per_node));
}

// A key that says something other than its default, and for nothing.
struct Idle {
    bool idle;
    const char *key, *when;
};

// A resolved input has all keys, so only what differs from the default is told; of keep_gathered what differs from its auto.
void warn_of_no_effect(const Config& c, const Settings& settings, const Job& job, std::vector<std::string>& warnings) {
    const Config usual;
    const bool gathers = c.sharding.zero_stage == 3 || c.offload.parameters != OffloadTo::none;
    const bool keeps = settings.given("sharding.keep_gathered") && c.sharding.keep_gathered && !settings.given("device.memory_limit");
    const bool sgd = c.optimizer.type == OptimizerType::sgd, rope = c.model.position_embedding == PositionEmbedding::rope;
    const CompressionConfig& x = c.compression;
    const std::vector<std::string> units = unit_names(c);
    const bool all_whole = std::all_of(units.begin(), units.end(), [&](const std::string& unit) { return sent_whole(x, unit); });
    const bool no_disk = !job.planning && !c.offload.uses(OffloadTo::nvme);  // a plan may propose nvme for what has no home there yet
    const char* elsewhere = "while nothing is offloaded to nvme";
    for (const auto& [idle, key, when] : {
             Idle{c.train.precision != Precision::fp16 && c.loss_scale != usual.loss_scale, "loss_scale", "without train.precision fp16"},
             Idle{!rope && c.model.rotary_base != usual.model.rotary_base, "model.rotary_base", "without model.position_embedding rope"},
             Idle{c.grid.tp == 1 && c.tensor.sequence_parallel, "tensor.sequence_parallel", "at grid.tp 1"},
             Idle{!gathers && keeps, "sharding.keep_gathered", "below sharding.zero_stage 3 while no parameters are offloaded"},
             Idle{sgd && c.optimizer.beta1 != usual.optimizer.beta1, "optimizer.beta1", "with optimizer.type sgd"},
             Idle{sgd && c.optimizer.beta2 != usual.optimizer.beta2, "optimizer.beta2", "with optimizer.type sgd"},
             Idle{sgd && c.optimizer.eps != usual.optimizer.eps, "optimizer.eps", "with optimizer.type sgd"},
             Idle{!x.on() && x != usual.compression, "comm.compression", "without a method"},
             Idle{x.on() && x.method != CompressionMethod::topk && x.ratio != usual.compression.ratio, "comm.compression.ratio",
                  "without method topk"},
             Idle{x.on() && x.method != CompressionMethod::qsgd && x.bits != usual.compression.bits, "comm.compression.bits", "without method qsgd"},
             Idle{x.on() && !job.planning && c.grid.dp == 1, "comm.compression", "while dp is 1"},
             Idle{x.on() && all_whole, "comm.compression", "while comm.compression.exclude names every unit"},
             Idle{c.checkpoint.asynchronous && c.checkpoint.interval == 0, "checkpoint.asynchronous", "with checkpoint.interval 0"},
             Idle{no_disk && c.offload.nvme_path != usual.offload.nvme_path, "offload.nvme_path", elsewhere},
             Idle{no_disk && c.offload.block_size != usual.offload.block_size, "offload.block_size", elsewhere},
             Idle{no_disk && c.offload.queue_depth != usual.offload.queue_depth, "offload.queue_depth", elsewhere},
         })
        if (idle) warnings.push_back(fmt::format("{} has no effect {}", key, when));
}

// What is allowed and hardly meant.
void warn_of_little_effect(const Config& c, const Job& job, std::vector<std::string>& warnings) {
    const std::int64_t warmup = c.optimizer.warmup_steps, steps = c.train.steps;
    if (warmup > steps && warmup != OptimizerConfig{}.warmup_steps)
        warnings.push_back(fmt::format("optimizer.warmup_steps {} are more than train.steps {}: the run ends in its warm-up, at {:.3g} % of lr",
                                       warmup, steps, 100.0 * static_cast<double>(steps) / static_cast<double>(warmup)));
    if (c.data.split.size() == 1)
        warnings.push_back(fmt::format("data.split {} is one weight, so all of the data is for training; \"90,10\" holds a tenth of it out",
                                       number_text(c.data.split[0])));
    if (c.compression.method == CompressionMethod::bf16 && c.train.gradient_dtype == Precision::bf16)
        warnings.push_back("comm.compression.method bf16 saves no byte of gradients that are bf16 (train.gradient_dtype)");
    if (c.comm.staleness > 0 && !job.planning && c.grid.dp * c.grid.sp == 1)
        warnings.push_back("comm.staleness hides nothing while dp and sp are 1: there is nobody to sum gradients with");
}

}  // namespace

Config resolve(const Settings& settings, const Origin& origin, const Job& job, Problems& problems,
               std::vector<std::string>& warnings) {
    Config config;
    settings.apply(config);
    Rules rules(settings, problems);
    resolve_model(config, settings, rules);
    resolve_grid(config, settings, job, rules);
    if (!settings.given("sharding.shard_size")) config.sharding.shard_size = config.grid.dp;
    if (!settings.given("sharding.keep_gathered")) config.sharding.keep_gathered = settings.given("device.memory_limit");
    resolve_batch(config, settings, problems);
    resolve_optimizer(config, settings);
    resolve_device(config, settings, job, rules, warnings);
    if (config.sequence.method == SequenceMethod::ulysses && !settings.given("sequence.layout"))
        config.sequence.layout = SequenceLayout::contiguous;
    resolve_paths(config, settings, origin, job, problems, warnings);
    warn_of_no_effect(config, settings, job, warnings);
    warn_of_little_effect(config, job, warnings);
    return config;
}

}  // namespace quadrille::input

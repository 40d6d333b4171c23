#include "train/settle.hpp"

#include "base/error.hpp"
#include "comm/agree.hpp"
#include "comm/probe.hpp"
#include "config/load.hpp"
#include "cpu/bench.hpp"
#include "train/collective_times.hpp"
#include "train/device.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace quadrille {
namespace {

DType type_of(Precision p) { return p == Precision::fp32 ? DType::f32 : p == Precision::bf16 ? DType::bf16 : DType::f16; }

// Of a product as the MLP has it, or a part of that, on every rank at once; the slowest rank's.
double measured_flops(const World& world, const Config& c) {
    constexpr std::int64_t most = 512;
    const std::int64_t tokens = c.train.micro_batch_size * c.model.seq_length / c.grid.sp;
    world.barrier();
    const double rate = product_rate(std::min(most, tokens), std::min(2 * most, c.model.ffn_hidden_size / c.grid.tp),
                                     std::min(2 * most, c.model.hidden_size), type_of(c.train.precision));
    return static_cast<double>(world.min(static_cast<std::int64_t>(rate)));
}

// Collectives of these are those that were measured, on one node.
bool is_measured(CollectiveAlgorithm a) {
    return a == CollectiveAlgorithm::automatic || a == CollectiveAlgorithm::ring || a == CollectiveAlgorithm::shared;
}

// The former input, if it is of the same grid and this program can read it.
std::optional<Config> run_alike(const std::string& former, const Config& now) {
    if (former.empty()) return {};
    try {
        Config before = parse_resolved(former);
        const auto grid = [](const Config& c) { return std::array{c.grid.dp, c.grid.tp, c.grid.pp, c.grid.sp}; };
        if (!leaves_open(before) && grid(before) == grid(now)) return before;
    } catch (const Error&) {  // of an older program, say
    }
    return {};
}

}  // namespace

std::vector<AllReduceTime> fastest_all_reduces(const std::vector<MeasuredTime>& times) {
    std::vector<AllReduceTime> all;
    for (const MeasuredTime& t : times) {
        if (t.kind != MoveKind::all_reduce) continue;
        const auto same = [&](const AllReduceTime& a) { return a.ranks == t.ranks && a.bytes == t.bytes; };
        const auto known = std::find_if(all.begin(), all.end(), same);
        if (known == all.end()) all.push_back({t.ranks, t.bytes, t.seconds});
        else known->seconds = std::min(known->seconds, t.seconds);
    }
    return all;
}

Choices settle(const World& world, const Config& config, const std::string& former) {
    if (!leaves_open(config)) return {config, {}};
    if (const std::optional<Config> before = run_alike(former, config)) return chosen_before(config, *before);
    Choices choices{config, {}};
    Machine machine;
    machine.assumed = false;
    machine.links = probe(world, config.grid.pretend_nodes);
    if (config.comm.bucket_size == 0) {
        machine.flops_per_second = measured_flops(world, config);
        machine.core_share = world.max(!world.spares_a_core(config.device.threads)) != 0 ? 1.0 / config.device.threads : 0.0;
        if (is_measured(config.comm.algorithm)) machine.all_reduces = fastest_all_reduces(measured_collective_times(world).times);
    }
    const std::string resolved = on_first_rank(world, [&] {
        try {
            choices = choose(config, workspace_of(config), machine);
        } catch (const TypingError& e) {
            throw Error(Exit::refused, std::string("the model does not fit the grid: ") + e.what());
        }
        return to_yaml(choices.config);
    });
    choices.config = parse_resolved(resolved);
    return choices;
}

}  // namespace quadrille

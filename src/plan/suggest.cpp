#include "plan/suggest.hpp"

#include "base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <new>

namespace quadrille {
namespace {

constexpr std::size_t most_suggestions = 4;

using Overrides = std::vector<std::string>;

// Half the sequences per pass, twice the passes: the same batch.
std::vector<Overrides> smaller_passes(const Config& c) {
    std::vector<Overrides> out;
    for (std::int64_t factor = 2; c.train.micro_batch_size % factor == 0; factor *= 2)
        out.push_back({fmt::format("train.micro_batch_size={}", c.train.micro_batch_size / factor),
                       fmt::format("train.gradient_accumulation_steps={}", c.train.gradient_accumulation_steps * factor)});
    return out;
}

std::vector<Overrides> cheap_switches(const Config& c) {
    std::vector<Overrides> out;
    if (c.grid.tp > 1 && !c.tensor.sequence_parallel) out.push_back({"tensor.sequence_parallel=true"});
    if (c.pipeline.schedule == Schedule::gpipe && c.pipeline.virtual_stages == 1 && c.grid.pp > 1) out.push_back({"pipeline.schedule=1f1b"});
    if (c.train.precision == Precision::fp32) out.push_back({"train.precision=bf16"});
    if (c.train.precision == Precision::bf16 && c.train.gradient_dtype == Precision::fp32) out.push_back({"train.gradient_dtype=bf16"});
    return out;
}

// dp traded for another axis: the same ranks, a smaller share of the model on each, more passes for the same batch.
std::vector<Overrides> finer_cuts(const Config& c) {
    std::vector<Overrides> out;
    for (int factor = 2; factor <= c.grid.dp; factor *= 2) {
        if (c.grid.dp % factor) continue;
        const auto traded = [&](const char* axis, int extent) {
            out.push_back({fmt::format("grid.dp={}", c.grid.dp / factor), fmt::format("grid.{}={}", axis, extent * factor),
                           fmt::format("train.gradient_accumulation_steps={}", c.train.gradient_accumulation_steps * factor)});
        };
        traded("tp", c.grid.tp);
        traded("pp", c.grid.pp);
        traded("sp", c.grid.sp);
    }
    return out;
}

Overrides joined(Overrides a, const Overrides& b) {
    for (const std::string& x : b) {
        const std::string key = x.substr(0, x.find('='));
        if (std::none_of(a.begin(), a.end(), [&](const std::string& y) { return y.substr(0, y.find('=')) == key; })) a.push_back(x);
    }
    return a;
}

}  // namespace

std::vector<Suggestion> suggest(const Config& config, const Workspace& workspace, const Variation& vary) {
    std::vector<Overrides> tries = smaller_passes(config);
    const std::vector<Overrides> switches = cheap_switches(config), cuts = finer_cuts(config), passes = tries;
    tries.insert(tries.end(), switches.begin(), switches.end());
    tries.insert(tries.end(), cuts.begin(), cuts.end());
    for (const Overrides& a : cuts)
        for (const Overrides& b : switches) tries.push_back(joined(a, b));
    if (!passes.empty())
        for (const Overrides& b : switches) tries.push_back(joined(passes.back(), b));
    std::vector<Suggestion> found;
    for (const Overrides& overrides : tries) {
        if (found.size() == most_suggestions) break;
        try {
            const Compiled c = compile(vary(overrides), Purpose::training, workspace);
            std::int64_t peak = 0;
            for (const Program& p : c.programs) peak = std::max(peak, p.peaks[0].arena);
            if (peak > config.device.memory_limit) continue;
            found.push_back({fmt::format("{}", fmt::join(overrides, " ")), peak});
        } catch (const Error&) {
            continue;  // the input's rules do not allow it
        } catch (const TypingError&) {
            continue;  // nor does the grid
        } catch (const std::bad_alloc&) {
            break;  // too little memory to look further: what was found still helps
        }
    }
    return found;
}

}  // namespace quadrille

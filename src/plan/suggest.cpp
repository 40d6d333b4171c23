#include "plan/suggest.hpp"

#include "base/error.hpp"
#include "config/load.hpp"
#include "config/names.hpp"
#include "model/model.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

namespace quadrille {
namespace {

constexpr std::size_t most_suggestions = 4;
constexpr std::int64_t most_ops = 10000000;  // of all programs of a change that is compiled: some gigabytes

using Overrides = std::vector<std::string>;
using Change = std::vector<Overrides>;  // its parts, each of which can be left out
using Ladder = std::vector<Change>;     // changes of one kind, the stronger the later

// Half the sequences per pass, twice the passes: the same batch.
Ladder smaller_passes(const Config& c) {
    Ladder out;
    for (std::int64_t factor = 2; c.train.micro_batch_size % factor == 0; factor *= 2)
        out.push_back({{fmt::format("train.micro_batch_size={}", c.train.micro_batch_size / factor),
                        fmt::format("train.gradient_accumulation_steps={}", c.train.gradient_accumulation_steps * factor)}});
    return out;
}

Ladder finer_shards(const Config& c) {
    Ladder out;
    if (grid_of(c).size(zero_axes) == 1) return out;
    for (int stage = c.sharding.zero_stage + 1; stage <= 3; ++stage) out.push_back({{fmt::format("sharding.zero_stage={}", stage)}});
    return out;
}

Ladder more_recompute(const Config& c) {
    Ladder out;
    if (c.recompute.granularity == Granularity::none) out.push_back({{"recompute.granularity=selective"}});
    if (c.recompute.granularity != Granularity::full) out.push_back({{"recompute.granularity=full"}});
    return out;
}

// What can go to a tier, a part each; to disk in the directory that the input names, else in the working directory.
Change parts_to(const Config& c, OffloadTo tier) {
    const OffloadConfig& o = c.offload;
    const bool disk = tier == OffloadTo::nvme;
    Change parts;
    for (const auto& [what, now] :
         {std::pair{"optimizer", o.optimizer}, {"gradients", o.gradients}, {"activations", o.activations}, {"parameters", o.parameters}}) {
        if (now != OffloadTo::none || (disk && std::string_view(what) == "gradients")) continue;
        parts.push_back({fmt::format("offload.{}={}", what, spelling(tier))});
        if (disk && o.nvme_path.empty()) parts.back().push_back("offload.nvme_path=.");
    }
    return parts;
}

Ladder one_part(const Change& parts) {
    Ladder out;
    for (const Overrides& part : parts) out.push_back({part});
    return out;
}

Ladder other_tiers(const Config& c) {
    const Change host = parts_to(c, OffloadTo::cpu);
    Change disk = parts_to(c, OffloadTo::nvme);
    Ladder out = one_part(host);
    if (host.size() > 1) out.push_back(host);
    for (const Change& one : one_part(disk)) out.push_back(one);
    if (c.offload.gradients == OffloadTo::none) disk.push_back({"offload.gradients=cpu"});
    if (disk.size() > 1) out.push_back(disk);
    return out;
}

Ladder smaller_elements(const Config& c) {
    Ladder out;
    if (c.train.precision == Precision::fp32) out.push_back({{"train.precision=bf16"}});
    else if (c.train.gradient_dtype == Precision::fp32) out.push_back({{fmt::format("train.gradient_dtype={}", spelling(c.train.precision))}});
    return out;
}

// What keeps the same ranks and costs little.
std::vector<Ladder> cheap_ladders(const Config& c) {
    std::vector<Ladder> out = {smaller_passes(c), finer_shards(c), more_recompute(c)};
    if (c.grid.tp > 1 && !c.tensor.sequence_parallel) out.push_back({{{"tensor.sequence_parallel=true"}}});
    if (c.pipeline.schedule == Schedule::gpipe && c.pipeline.virtual_stages == 1 && c.grid.pp > 1) out.push_back({{{"pipeline.schedule=1f1b"}}});
    out.push_back(smaller_elements(c));
    std::erase_if(out, [](const Ladder& l) { return l.empty(); });
    return out;
}

// dp traded for another axis: the same ranks, a smaller share of the model on each, more passes for the same batch.
Ladder finer_cuts(const Config& c, const char* axis, int extent) {
    Ladder out;
    for (int factor = 2; factor <= c.grid.dp; factor *= 2)
        if (c.grid.dp % factor == 0)
            out.push_back({{fmt::format("grid.dp={}", c.grid.dp / factor), fmt::format("grid.{}={}", axis, extent * factor),
                            fmt::format("train.gradient_accumulation_steps={}", c.train.gradient_accumulation_steps * factor)}});
    return out;
}

Change joined(Change a, const Change& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// All parts, each key once: the first says its value.
Overrides overrides_of(const Change& change) {
    Overrides all;
    for (const Overrides& part : change) all = merged_overrides(part, all);
    return all;
}

class Suggest {
  public:
    Suggest(const Config& config, const Workspace& workspace, const Variation& vary, double cost)
        : config_(config), workspace_(workspace), vary_(vary), cost_(cost) {}

    std::vector<Suggestion> run() {
        std::vector<Ladder> cheap = cheap_ladders(config_);
        const GridConfig& grid = config_.grid;
        std::vector<Ladder> cuts = {other_tiers(config_), finer_cuts(config_, "tp", grid.tp), finer_cuts(config_, "pp", grid.pp),
                                    finer_cuts(config_, "sp", grid.sp)};
        std::erase_if(cheap, [this](const Ladder& l) { return all_that_fit(l) > 0; });
        beside_the_optimizer(cheap);
        std::erase_if(cuts, [this](const Ladder& l) { return !enough() && first_that_fits(l, {}); });
        combine(cheap, cuts);
        const auto other_numbers = [](const Suggestion& s) {
            return s.change.find("train.precision") != std::string::npos || s.change.find("gradient_dtype") != std::string::npos;
        };
        std::stable_sort(found_.begin(), found_.end(), [&](const Suggestion& a, const Suggestion& b) {
            return other_numbers(a) != other_numbers(b) ? other_numbers(b) : a.cost < b.cost;
        });
        if (found_.size() > most_suggestions) found_.resize(most_suggestions);
        return std::move(found_);
    }

  private:
    bool enough() const { return found_.size() >= most_suggestions; }

    std::int64_t all_that_fit(const Ladder& ladder) {
        return std::count_if(ladder.begin(), ladder.end(), [this](const Change& c) { return keep(c); });
    }

    bool first_that_fits(const Ladder& ladder, const Change& beside) {
        return std::any_of(ladder.begin(), ladder.end(), [&](const Change& c) { return keep(joined(c, beside)); });
    }

    // The optimizer's state in host memory, which moves once a step, and one cheap change: often less than all that other tiers can hold.
    void beside_the_optimizer(const std::vector<Ladder>& cheap) {
        const Change optimizer = {{std::string("offload.optimizer=cpu")}};
        if (config_.offload.optimizer != OffloadTo::none || attempt(optimizer)) return;
        for (const Ladder& ladder : cheap)
            if (!enough()) first_that_fits(ladder, optimizer);
    }

    // Of what does not fit by itself: the strongest of two kinds, of each kind with other tiers or a finer cut, of all kinds, and all that
    // with these.
    void combine(const std::vector<Ladder>& cheap, const std::vector<Ladder>& cuts) {
        Change all;
        for (std::size_t a = 0; a < cheap.size(); ++a) {
            for (std::size_t b = a + 1; b < cheap.size() && !enough(); ++b) keep(joined(cheap[a].back(), cheap[b].back()));
            all = joined(all, cheap[a].back());
        }
        const auto with_cuts = [&](const Change& change) {
            for (const Ladder& ladder : cuts)
                if (!enough()) first_that_fits(ladder, change);
        };
        for (const Ladder& ladder : cheap) with_cuts(ladder.back());
        if (enough() || cheap.size() < 3) return;
        keep(all);
        with_cuts(all);
    }

    // Whether the change fits; if so it is offered, less what it does not need.
    bool keep(const Change& change) {
        if (!attempt(change)) return false;
        const Suggestion& least = *attempt(pruned(change));
        if (std::none_of(found_.begin(), found_.end(), [&](const Suggestion& s) { return s.change == least.change; })) found_.push_back(least);
        return true;
    }

    // Of a change that fits, in turn the part is left out without which it still fits and costs least.
    Change pruned(Change change) {
        for (Change best = change; change.size() > 1; change = best) {
            double least = std::numeric_limits<double>::infinity();
            for (std::size_t i = 0; i < change.size(); ++i) {
                Change without = change;
                without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
                const auto& fitting = attempt(without);
                if (!fitting || fitting->cost >= least) continue;
                least = fitting->cost;
                best = without;
            }
            if (best.size() == change.size()) break;
        }
        return change;
    }

    // The change if it fits, with its figures. Compiled once.
    const std::optional<Suggestion>& attempt(const Change& change) {
        const Overrides overrides = overrides_of(change);
        const auto [at, fresh] = tried_.try_emplace(fmt::format("{}", fmt::join(overrides, " ")));
        if (fresh) at->second = compiled(overrides, at->first);
        return at->second;
    }

    // What does not fit with few microbatches does not with all of them either, and is sooner known.
    std::optional<Suggestion> compiled(const Overrides& change, const std::string& text) const {
        try {
            const Config config = vary_(change);
            if (config.train.global_batch_size != config_.train.global_batch_size) return {};  // that would be another training
            const std::int64_t all = config.train.gradient_accumulation_steps;
            Config few = config;
            few.train.gradient_accumulation_steps = std::min<std::int64_t>(all, 2 * config.grid.pp);
            Compiled c = compile(few, Purpose::training, workspace_);
            if (!fit(c)) return {};
            if (const std::int64_t part = few.train.gradient_accumulation_steps; part < all) {
                std::int64_t ops = 0;
                for (const Program& p : c.programs) ops += static_cast<std::int64_t>(p.ops.size());
                if (ops > most_ops / all * part) return {};
                c = compile(config, Purpose::training, workspace_);
            }
            if (!fit(c)) return {};
            return Suggestion{text, peaks(c), step_cost(c) / cost_};
        } catch (const Error&) {
            return {};  // the input's rules do not allow it
        } catch (const TypingError&) {
            return {};  // nor does the grid
        }
    }

    bool fit(const Compiled& c) const {
        return std::all_of(c.programs.begin(), c.programs.end(), [this](const Program& p) { return fits(p, config_.device); });
    }

    static std::array<std::int64_t, tier_count> peaks(const Compiled& c) {
        std::array<std::int64_t, tier_count> most{};
        for (const Program& p : c.programs)
            for (std::size_t t = 0; t < tier_count; ++t) most[t] = std::max(most[t], p.peaks[t].arena);
        return most;
    }

    const Config& config_;
    const Workspace& workspace_;
    const Variation& vary_;
    const double cost_;              // of the input as it is
    std::vector<Suggestion> found_;
    std::map<std::string, std::optional<Suggestion>> tried_;  // by their overrides
};

}  // namespace

std::vector<Suggestion> suggest(const Config& config, const Workspace& workspace, const Variation& vary, double cost) {
    return Suggest(config, workspace, vary, cost).run();
}

}  // namespace quadrille

#include "plan/suggest.hpp"

#include "base/error.hpp"
#include "config/names.hpp"
#include "model/model.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <new>

namespace quadrille {
namespace {

constexpr std::size_t most_suggestions = 4;
constexpr std::int64_t most_ops = 10000000;  // of all programs of a change that is compiled: some gigabytes

using Overrides = std::vector<std::string>;
using Ladder = std::vector<Overrides>;  // changes of one kind, the stronger the later

// Half the sequences per pass, twice the passes: the same batch.
Ladder smaller_passes(const Config& c) {
    Ladder out;
    for (std::int64_t factor = 2; c.train.micro_batch_size % factor == 0; factor *= 2)
        out.push_back({fmt::format("train.micro_batch_size={}", c.train.micro_batch_size / factor),
                       fmt::format("train.gradient_accumulation_steps={}", c.train.gradient_accumulation_steps * factor)});
    return out;
}

Ladder finer_shards(const Config& c) {
    Ladder out;
    if (grid_of(c).size(zero_axes) == 1) return out;
    for (int stage = c.sharding.zero_stage + 1; stage <= 3; ++stage) out.push_back({fmt::format("sharding.zero_stage={}", stage)});
    return out;
}

Ladder more_recompute(const Config& c) {
    Ladder out;
    if (c.recompute.granularity == Granularity::none) out.push_back({"recompute.granularity=selective"});
    if (c.recompute.granularity != Granularity::full) out.push_back({"recompute.granularity=full"});
    return out;
}

// To host memory, or to disk: in the run's own directory where the input names none.
Ladder other_tiers(const Config& c) {
    const OffloadConfig& o = c.offload;
    Ladder out;
    Overrides all;
    for (const OffloadTo tier : {OffloadTo::cpu, OffloadTo::nvme}) {
        const bool disk = tier == OffloadTo::nvme;
        for (const auto& [what, now] :
             {std::pair{"optimizer", o.optimizer}, {"gradients", o.gradients}, {"activations", o.activations}, {"parameters", o.parameters}}) {
            if (now != OffloadTo::none || (disk && std::string_view(what) == "gradients")) continue;
            out.push_back({fmt::format("offload.{}={}", what, spelling(tier))});
            all.push_back(out.back()[0]);
        }
        if (disk && o.gradients == OffloadTo::none) all.push_back("offload.gradients=cpu");
        if (all.size() > 1) out.push_back(all);
        all.clear();
        if (disk && o.nvme_path.empty())
            for (Overrides& change : out)
                if (change[0].ends_with("=nvme")) change.push_back("offload.nvme_path=.");
    }
    return out;
}

Ladder smaller_elements(const Config& c) {
    Ladder out;
    if (c.train.precision == Precision::fp32) out.push_back({"train.precision=bf16"});
    else if (c.train.gradient_dtype == Precision::fp32) out.push_back({fmt::format("train.gradient_dtype={}", spelling(c.train.precision))});
    return out;
}

// What keeps the same ranks and costs little.
std::vector<Ladder> cheap_ladders(const Config& c) {
    std::vector<Ladder> out = {smaller_passes(c), finer_shards(c), more_recompute(c)};
    if (c.grid.tp > 1 && !c.tensor.sequence_parallel) out.push_back({{"tensor.sequence_parallel=true"}});
    if (c.pipeline.schedule == Schedule::gpipe && c.pipeline.virtual_stages == 1 && c.grid.pp > 1) out.push_back({{"pipeline.schedule=1f1b"}});
    out.push_back(smaller_elements(c));
    std::erase_if(out, [](const Ladder& l) { return l.empty(); });
    return out;
}

// dp traded for another axis: the same ranks, a smaller share of the model on each, more passes for the same batch.
Ladder finer_cuts(const Config& c, const char* axis, int extent) {
    Ladder out;
    for (int factor = 2; factor <= c.grid.dp; factor *= 2)
        if (c.grid.dp % factor == 0)
            out.push_back({fmt::format("grid.dp={}", c.grid.dp / factor), fmt::format("grid.{}={}", axis, extent * factor),
                           fmt::format("train.gradient_accumulation_steps={}", c.train.gradient_accumulation_steps * factor)});
    return out;
}

Overrides joined(Overrides a, const Overrides& b) {
    for (const std::string& x : b) {
        const std::string key = x.substr(0, x.find('='));
        if (std::none_of(a.begin(), a.end(), [&](const std::string& y) { return y.substr(0, y.find('=')) == key; })) a.push_back(x);
    }
    return a;
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
        return std::count_if(ladder.begin(), ladder.end(), [this](const Overrides& o) { return attempt(o); });
    }

    bool first_that_fits(const Ladder& ladder, const Overrides& beside) {
        return std::any_of(ladder.begin(), ladder.end(), [&](const Overrides& o) { return attempt(joined(o, beside)); });
    }

    // Of what does not fit by itself: the strongest of two kinds, of each kind with other tiers or a finer cut, of all kinds, and all that
    // with these.
    void combine(const std::vector<Ladder>& cheap, const std::vector<Ladder>& cuts) {
        Overrides all;
        for (std::size_t a = 0; a < cheap.size(); ++a) {
            for (std::size_t b = a + 1; b < cheap.size() && !enough(); ++b) attempt(joined(cheap[a].back(), cheap[b].back()));
            all = joined(all, cheap[a].back());
        }
        const auto with_cuts = [&](const Overrides& change) {
            for (const Ladder& ladder : cuts)
                if (!enough()) first_that_fits(ladder, change);
        };
        for (const Ladder& ladder : cheap) with_cuts(ladder.back());
        if (enough() || cheap.size() < 3) return;
        attempt(all);
        with_cuts(all);
    }

    // Compiles the change, and keeps it if it fits. What does not fit with few microbatches does not with all of them either, and is sooner known.
    bool attempt(const Overrides& change) {
        try {
            const Config config = vary_(change);
            const std::int64_t all = config.train.gradient_accumulation_steps;
            Config few = config;
            few.train.gradient_accumulation_steps = std::min<std::int64_t>(all, 2 * config.grid.pp);
            Compiled c = compile(few, Purpose::training, workspace_);
            if (!fit(c)) return false;
            if (const std::int64_t part = few.train.gradient_accumulation_steps; part < all) {
                std::int64_t ops = 0;
                for (const Program& p : c.programs) ops += static_cast<std::int64_t>(p.ops.size());
                if (ops > most_ops / all * part) return false;
                c = compile(config, Purpose::training, workspace_);
            }
            if (!fit(c)) return false;
            found_.push_back({fmt::format("{}", fmt::join(change, " ")), peaks(c), step_cost(c) / cost_});
            return true;
        } catch (const Error&) {
            return false;  // the input's rules do not allow it
        } catch (const TypingError&) {
            return false;  // nor does the grid
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
};

}  // namespace

std::vector<Suggestion> suggest(const Config& config, const Workspace& workspace, const Variation& vary, double cost) {
    return Suggest(config, workspace, vary, cost).run();
}

}  // namespace quadrille

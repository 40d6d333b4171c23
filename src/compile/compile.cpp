#include "compile/compile.hpp"

#include "compile/bucket.hpp"
#include "compile/differentiate.hpp"
#include "compile/expand.hpp"
#include "compile/fuse.hpp"
#include "compile/instantiate.hpp"
#include "compile/homes.hpp"
#include "compile/offload.hpp"
#include "compile/place.hpp"
#include "compile/prefetch.hpp"
#include "compile/recompute.hpp"
#include "compile/staging.hpp"

namespace quadrille {
namespace {

Config without_dropout(Config config) {
    config.model.hidden_dropout = config.model.attention_dropout = 0;
    return config;
}

// The passes over one coordinate's program. `kept`: as in place.
Program finish(Step step, const Model& model, const Config& config, const Workspace& workspace, int kept) {
    Program p = place(std::move(step), model, config, kept);
    offload_activations(p, tier_of(config.offload.activations));
    bucket(p, config.comm.bucket_size);
    if (config.comm.overlap) {
        postpone(p);
        prefetch(p, config.sharding.prefetch);
    }
    if (workspace.through_host) stage_through_host(p);
    overlap(p, config.comm.overlap);
    lay_out(p, workspace);
    return p;
}

// Fetched weights stay from forward to backward in as many units as device.memory_limit has room for, found by bisection.
Program fill_memory(Step step, const Model& model, const Config& config, const Workspace& workspace) {
    const std::int64_t limit = config.device.memory_limit;
    const auto fits = [limit](const Program& p) { return limit == 0 || p.peaks[static_cast<std::size_t>(Tier::device)].arena <= limit; };
    const bool fetches = config.sharding.zero_stage == 3 || config.offload.parameters != OffloadTo::none;
    if (!fetches || !config.sharding.keep_gathered) return finish(std::move(step), model, config, workspace, 0);
    Program best = finish(step, model, config, workspace, 0);
    int least = 0, most = static_cast<int>(best.flats.size());
    for (int kept = most; least < most; kept = (least + most + 1) / 2) {  // all of them first: more often than not they fit
        Program p = finish(step, model, config, workspace, kept);
        if (fits(p)) {
            best = std::move(p);
            least = kept;
        } else {
            most = kept - 1;
        }
    }
    return best;
}

}  // namespace

Compiled compile(const Config& config, Purpose purpose, const Workspace& workspace) {
    Compiled out;
    out.tables = std::make_shared<Tables>(grid_of(config));
    Model model = build_model(purpose == Purpose::training ? config : without_dropout(config), out.tables);
    bool wanted = false;  // the gradient of what the chunks so far made
    for (Chunk& chunk : model.chunks) {
        wanted = differentiate(chunk, model, wanted);
        recompute(chunk, config.recompute.granularity);
        expand_rings(chunk);
        fuse(chunk);
    }
    const auto microbatches = static_cast<int>(config.train.gradient_accumulation_steps);
    const PipelineConfig& pipeline = config.pipeline;
    out.orders = purpose == Purpose::training ? schedule(pipeline.schedule, config.grid.pp, pipeline.virtual_stages, microbatches)
                                              : forward_only(config.grid.pp, pipeline.virtual_stages, microbatches);
    std::vector<Step> steps = instantiate(model, out.orders, microbatches);
    place_receives(steps);
    for (Step& step : steps) out.programs.push_back(fill_memory(std::move(step), model, config, workspace));
    return out;
}

Config serial(Config config) {
    config.train.micro_batch_size *= config.grid.dp;
    config.grid.dp = config.grid.tp = config.grid.pp = config.grid.sp = 1;
    config.tensor.sequence_parallel = false;
    config.sharding = {};
    config.offload = {};
    config.recompute = {};
    config.pipeline = {};
    return config;
}

}  // namespace quadrille

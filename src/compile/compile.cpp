#include "compile/compile.hpp"

#include "compile/bucket.hpp"
#include "compile/differentiate.hpp"
#include "compile/expand.hpp"
#include "compile/fuse.hpp"
#include "compile/instantiate.hpp"
#include "compile/place.hpp"

namespace quadrille {
namespace {

Config without_dropout(Config config) {
    config.model.hidden_dropout = config.model.attention_dropout = 0;
    return config;
}

}  // namespace

Compiled compile(const Config& config, Purpose purpose, const Workspace& workspace) {
    Compiled out;
    out.tables = std::make_shared<Tables>(grid_of(config));
    Model model = build_model(purpose == Purpose::training ? config : without_dropout(config), out.tables);
    for (Chunk& chunk : model.chunks) {
        differentiate(chunk, model);
        expand_rings(chunk);
        fuse(chunk);
    }
    const auto microbatches = static_cast<int>(config.train.gradient_accumulation_steps);
    const PipelineConfig& pipeline = config.pipeline;
    out.orders = purpose == Purpose::training ? schedule(pipeline.schedule, config.grid.pp, pipeline.virtual_stages, microbatches)
                                              : forward_only(config.grid.pp, pipeline.virtual_stages, microbatches);
    std::vector<Step> steps = instantiate(model, out.orders, microbatches);
    place_receives(steps);
    for (Step& step : steps) {
        Program p = place(std::move(step), model, config);
        bucket(p, config.comm.bucket_size);
        overlap(p, config.comm.overlap);
        lay_out(p, workspace);
        out.programs.push_back(std::move(p));
    }
    return out;
}

Config serial(Config config) {
    config.train.micro_batch_size *= config.grid.dp;
    config.grid.dp = config.grid.tp = config.grid.pp = config.grid.sp = 1;
    config.tensor.sequence_parallel = false;
    config.pipeline = {};
    return config;
}

}  // namespace quadrille

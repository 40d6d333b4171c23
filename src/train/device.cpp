#include "train/device.hpp"

#include "runtime/executor.hpp"

namespace quadrille {

EngineOptions engine_options(const Config& config) {
    EngineOptions options;
    options.max_count = config.comm.max_count;
    options.compute_threads = config.device.threads;
    return options;
}

Workspace workspace_of(const Config& config) { return {device_workspace(config.device.threads), Engine::staging_bytes(engine_options(config))}; }

}  // namespace quadrille

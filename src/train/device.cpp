#include "train/device.hpp"

#include "cpu/device.hpp"
#include "runtime/executor.hpp"

namespace quadrille {
namespace {

Algorithm algorithm_of(CollectiveAlgorithm a) {
    switch (a) {
        case CollectiveAlgorithm::automatic: return Algorithm::automatic;
        case CollectiveAlgorithm::ring: break;
        case CollectiveAlgorithm::shared: return Algorithm::shared;
        case CollectiveAlgorithm::hierarchical: return Algorithm::hierarchical;
        case CollectiveAlgorithm::native: return Algorithm::native;
    }
    return Algorithm::ring;
}

}  // namespace

EngineOptions engine_options(const Config& config) {
    EngineOptions options;
    options.algorithm = algorithm_of(config.comm.algorithm);
    options.pretend_nodes = config.grid.pretend_nodes;
    options.max_count = config.comm.max_count;
    options.compute_threads = config.device.threads;
    options.check = config.comm.check;
    return options;
}

NvmeOptions nvme_options(const Config& config) {
    NvmeOptions options;
    options.directory = config.offload.nvme_path;
    options.block_size = config.offload.block_size;
    options.queue_depth = config.offload.queue_depth;
    return options;
}

std::unique_ptr<Device> device_of(const Config& config) { return std::make_unique<CpuDevice>(config.device.threads); }

Workspace workspace_of(const Config& config) {
    return {device_workspace(std::make_shared<CpuKernels>(config.device.threads)), Engine::staging_bytes(engine_options(config)),
            NvmeFile::staging_bytes(nvme_options(config)), config.checkpoint.behind_training()};
}

}  // namespace quadrille

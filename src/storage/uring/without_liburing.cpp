// Built where liburing is not found.
#include "storage/block_engine.hpp"

namespace quadrille {

std::unique_ptr<BlockEngine> uring_engine(int, int, std::span<std::byte>, std::span<const std::span<std::byte>>, std::vector<std::string>& notes) {
    notes.push_back("offload: built without liburing: a few threads read and write the nvme tier with pread and pwrite");
    return nullptr;
}

}  // namespace quadrille

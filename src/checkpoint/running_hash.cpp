#include "checkpoint/running_hash.hpp"

#define XXH_STATIC_LINKING_ONLY  // for the state's members
#include <xxhash.h>

#include <cstring>

namespace quadrille {

void RunningHash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

RunningHash::RunningHash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }

RunningHash::RunningHash(std::span<const std::byte> handed) : RunningHash() {
    const unsigned char* const secret = state_->extSecret;  // the one address in it, of this process
    std::memcpy(state_.get(), handed.data(), sizeof(XXH3_state_s));
    state_->extSecret = secret;
}

void RunningHash::add(std::span<const std::byte> part) { XXH3_64bits_update(state_.get(), part.data(), part.size()); }

std::uint64_t RunningHash::value() const { return XXH3_64bits_digest(state_.get()); }

std::vector<std::byte> RunningHash::hand_on() const {
    std::vector<std::byte> handed(sizeof(XXH3_state_s));
    std::memcpy(handed.data(), state_.get(), sizeof(XXH3_state_s));
    return handed;
}

std::int64_t RunningHash::handed_bytes() { return sizeof(XXH3_state_s); }

}  // namespace quadrille

#include "checkpoint/running_hash.hpp"

#define XXH_STATIC_LINKING_ONLY  // for the state's size and members
#include <xxhash.h>

namespace quadrille {

static_assert(sizeof(XXH3_state_s) <= RunningHash::state_bytes && alignof(XXH3_state_s) <= 64);

RunningHash::RunningHash() { XXH3_64bits_reset(state()); }

RunningHash::RunningHash(const Handed& handed) : RunningHash() {
    const unsigned char* const secret = state()->extSecret;  // the one address in it, of this process
    state_ = handed;
    state()->extSecret = secret;
}

void RunningHash::add(std::span<const std::byte> part) { XXH3_64bits_update(state(), part.data(), part.size()); }

std::uint64_t RunningHash::value() const { return XXH3_64bits_digest(state()); }

}  // namespace quadrille

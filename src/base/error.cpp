#include "base/error.hpp"

#include "base/out_of_memory.hpp"

#include <system_error>

namespace quadrille {

Failure failure_of(const std::exception& e) {
    if (const auto* error = dynamic_cast<const Error*>(&e)) return {error->exit(), e.what()};
    if (dynamic_cast<const OutOfMemory*>(&e)) return {Exit::no_memory, e.what()};
    if (dynamic_cast<const std::bad_alloc*>(&e)) return {Exit::no_memory, "out of memory"};
    const auto* system = dynamic_cast<const std::system_error*>(&e);
    if (system && (system->code() == std::errc::not_enough_memory || system->code() == std::errc::resource_unavailable_try_again))
        return {Exit::no_memory, fmt::format("a thread cannot be started ({}): its stack needs memory, and their number may be limited", e.what())};
    return {Exit::rank_failed, e.what()};
}

}  // namespace quadrille

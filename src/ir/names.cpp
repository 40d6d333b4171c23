#include "ir/op.hpp"

namespace quadrille {

std::string_view name_of(Input i) {
    constexpr std::array<std::string_view, 5> names = {"tokens", "targets", "mask", "positions", "document_start"};
    return names[static_cast<std::size_t>(i)];
}

std::string_view name_of(Queue q) {
    constexpr std::array<std::string_view, 6> names = {"compute", "collective", "stage", "copy_in", "copy_out", "disk"};
    return names[static_cast<std::size_t>(q)];
}

}  // namespace quadrille

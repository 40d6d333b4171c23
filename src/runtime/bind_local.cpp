// What fills tensors without arithmetic: the batch's part of this rank, and the redistributes that stay on it.
#include "base/error.hpp"
#include "cpu/elementwise.hpp"
#include "runtime/bindings.hpp"
#include "runtime/moves.hpp"

#include <algorithm>
#include <cstring>

namespace quadrille {

Kernel bind_load(const Call& c) {
    const Input input = c.attributes().input;
    const auto& positions = c.lists.of(c.out_type(0), c.out_tensor(0).dims - 1);
    const std::int64_t rows = c.out_count(0) / static_cast<std::int64_t>(positions.size());
    if (input == Input::positions)
        return [rows, to = reinterpret_cast<std::int32_t*>(c.out[0]), &positions](const StepInputs&) {
            for (std::int64_t row = 0, at = 0; row < rows; ++row)
                for (const std::int64_t p : positions) to[at++] = static_cast<std::int32_t>(p);
        };
    const LoadRequest request{input, c.op.microbatch, c.lists.of(c.out_type(0), 0), positions, c.out[0]};
    return [request](const StepInputs& s) { s.load(request); };
}

Kernel bind_local(const Call& c) {
    require(c.in.size() == 1, "runtime: a redistribute that stays on its rank takes one tensor");
    const LocalMove local = plan_local(c.program, c.op, c.at);
    const std::int64_t size = bytes_of(c.in_tensor(0).dtype), bytes = c.out_count(0) * size;
    std::byte *from = c.in[0], *to = c.out[0];
    if (local.mine.empty()) {  // first keeps
        if (!local.keeps) return [=](const StepInputs&) { zero(to, bytes); };
        if (to == from) return {};
        return [=](const StepInputs&) { std::memcpy(to, from, static_cast<std::size_t>(bytes)); };
    }
    if (local.mine.size() == 1 && to == from + local.mine[0].offset * size) return {};  // a view
    require(to + bytes <= from || from + c.in_count(0) * size <= to, "runtime: a slice overlaps what it is cut from");
    return [=](const StepInputs&) {
        std::byte* next = to;
        for (const Extent& e : local.mine) {
            std::memcpy(next, from + e.offset * size, static_cast<std::size_t>(e.count * size));
            next += e.count * size;
        }
    };
}

}  // namespace quadrille

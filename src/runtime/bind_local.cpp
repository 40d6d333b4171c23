// What fills tensors without arithmetic: the batch's part of this rank, and the redistributes that stay on it.
#include "base/error.hpp"
#include "runtime/bindings.hpp"
#include "runtime/moves.hpp"

namespace quadrille {

Kernel bind_load(const Call& c) {
    const Input input = c.attributes().input;
    const auto& positions = c.lists.of(c.out_type(0), c.out_tensor(0).dims - 1);
    const std::int64_t count = std::ssize(positions.host), rows = c.out_count(0) / count;
    if (input == Input::positions)
        return [=, from = positions.device, to = reinterpret_cast<std::int32_t*>(c.out[0]), &k = c.kernels](const StepInputs&) {
            k.repeat(from, count, rows, to);
        };
    const LoadRequest request{input, c.op.microbatch, c.lists.of(c.out_type(0), 0).host, positions.host, c.out[0]};
    return [request](const StepInputs& s) { s.load(request); };
}

Kernel bind_local(const Call& c) {
    require(c.in.size() == 1, "runtime: a redistribute that stays on its rank takes one tensor");
    const LocalMove local = plan_local(c.program, c.op, c.at);
    const std::int64_t size = bytes_of(c.in_tensor(0).dtype), bytes = c.out_count(0) * size;
    std::byte *from = c.in[0], *to = c.out[0];
    Kernels& k = c.kernels;
    const Extent all{0, bytes};
    if (local.mine.empty()) {  // first keeps
        if (!local.keeps) return [=, &k](const StepInputs&) { k.zero(to, bytes); };
        if (to == from) return {};
        return [=, &k](const StepInputs&) { k.gather(from, {&all, 1}, 1, to); };
    }
    if (local.mine.size() == 1 && to == from + local.mine[0].offset * size) return {};  // a view
    require(to + bytes <= from || from + c.in_count(0) * size <= to, "runtime: a slice overlaps what it is cut from");
    return [=, &k, mine = local.mine](const StepInputs&) { k.gather(from, mine, size, to); };
}

}  // namespace quadrille

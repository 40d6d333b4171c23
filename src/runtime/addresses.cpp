#include "runtime/addresses.hpp"

#include "base/error.hpp"

namespace quadrille {

ByteRange range_of(const Program& program, const Coordinate& at, TensorId t) {
    const Tensor& x = program.tensor(t);
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(x.buffer)];
    if (buffer.offset < 0) require(false, fmt::format("runtime: {} has no place in the arena", program.name(t)));
    const std::int64_t count = program.tables->count(x.type), size = bytes_of(program.type(t).dtype);
    const std::int64_t element = x.offset + program.grid().position(at, x.slice_axes) * count;
    const std::int64_t begin = buffer.offset + element * size;
    return {buffer.tier, begin, begin + count * size};
}

ByteRange workspace_of(const Program& program, const Op& op) {
    if (op.workspace < 0) return {};
    const Buffer& b = program.buffers[static_cast<std::size_t>(op.workspace)];
    return {b.tier, b.offset, b.offset + b.bytes};
}

}  // namespace quadrille

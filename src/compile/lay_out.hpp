// Gives every buffer its place in its tier's arena, and finds the peak of memory, before a byte is allocated.
#pragma once
#include "ir/program.hpp"

#include <functional>

namespace quadrille {

// Bytes of scratch memory a device's kernel needs for an op; 0 for none.
using Workspace = std::function<std::int64_t(const Program&, const Op&)>;

constexpr std::int64_t buffer_alignment = 64;  // bytes

// Fills Buffer::bytes, offset, first and last, Op::workspace and Program::peaks. The training state comes first, in the order of its
// declaration, so that all programs of one coordinate find it at the same place. A buffer is occupied from the first op that touches it
// to the last, an asynchronous op touching its operands until Op::until. Best fit over the free extents, in order of birth.
void lay_out(Program&, const Workspace&);

}  // namespace quadrille

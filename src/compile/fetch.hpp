// Which moves between ranks carry units' flat tensors or packets of them, which of them bring weights to a use, and what waits for reduced gradients.
// Internal to the compiler's last passes.
#pragma once
#include "ir/table.hpp"
#include "ir/program.hpp"

namespace quadrille {

inline Change change_of(const Program& p, const Op& op) { return change(p.type(p.inputs(op)[0]), p.tables->type(p.attributes(op).types[0]).place); }

inline bool moves_flat(const Program& p, const Op& op) {
    if (op.kind != Kind::redistribute || op.queue != Queue::collective || op.inputs != 1) return false;
    const TensorType& t = p.type(p.inputs(op)[0]);
    const bool packets = t.dims == 3 && t.dtype == DType::u8;
    return (t.dims == 1 || packets) && (data_axes | AxisSet(Axis::sp)).contains(change_of(p, op).axes);
}

// A gather of weights, not of a sum, in front of a use: into memory of its own.
inline bool gathers_for_use(const Program& p, const Op& op) {
    return moves_flat(p, op) && change_of(p, op).pair == Pair::all_gather && p.type(p.inputs(op)[0]).covers == 0 &&
           p.tensors[static_cast<std::size_t>(p.inputs(op)[0])].buffer != p.tensors[static_cast<std::size_t>(p.outputs(op)[0])].buffer;
}

// What reads what a reduction brings and is in no hurry, and what is made of its squares.
inline bool settles(const Op& op) {
    return op.kind == Kind::accumulate || op.kind == Kind::sum_squares || op.kind == Kind::compress || op.kind == Kind::decompress;
}
inline bool adds_squares(const Program& p, const Op& op) {
    const bool adds = op.kind == Kind::add || op.kind == Kind::redistribute;
    return op.part == Part::step && op.queue == Queue::compute && adds && p.type(p.outputs(op)[0]).dims == 0;
}

}  // namespace quadrille

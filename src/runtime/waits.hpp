// What waits for what. Nobody writes events: an op waits for the earlier asynchronous ops that write what it reads, or read or
// write what it writes. What an op touches is byte ranges of the arena, never names, so an op that is given memory still in
// use by a move waits for that move too. Pure.
#pragma once
#include "runtime/addresses.hpp"

#include <vector>

namespace quadrille {

// The bytes that an op's code touches. split touches nothing (its views are its input's bytes); join writes the padding only.
struct Accesses { std::vector<ByteRange> reads, writes; };
Accesses accesses(const Program& program, const Op& op, const Coordinate& at);
// Whether the later one must come after the earlier one.
bool conflict(const Accesses& later, const Accesses& earlier);

// True for the ops that run behind the compute queue.
constexpr bool asynchronous(const Op& op) { return op.queue != Queue::compute; }

struct Waits {
    std::vector<std::int32_t> before;  // moves that must be done before this op begins: the calling thread waits for them
    std::vector<std::int32_t> after;   // an asynchronous op: moves in flight that its own move must not overtake
    bool at_once = false;              // an asynchronous op that is waited for directly after its start
};

// One entry per op, then one whose `before` are the moves still in flight at the end of the step. Each asynchronous op that is
// not at_once is in exactly one `before`.
std::vector<Waits> derive_waits(const Program& program, const Coordinate& at);

}  // namespace quadrille

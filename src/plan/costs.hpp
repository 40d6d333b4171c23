// What programs cost, counted from their text: FLOPs and bytes on the wire. No seconds here.
#pragma once
#include "compile/compile.hpp"
#include "plan/simulate.hpp"

#include <map>

namespace quadrille {

// FLOPs of the model per step and whole job: forward and backward matrix products and attention scores, multiply and add counted as two
// (eq. 3 of Narayanan et al. 2021, without its recompute factor: causal attention is not halved; generalised to grouped heads and swiglu).
// A trained matrix counts three times its forward product: for it, its input's gradient and its own. With adapters a frozen one counts twice,
// below the first layer that has adapters once, as do scores there; scores and adapters count three times: 4 N + 6 n a token instead of 6 N.
double model_flops(const Config&);

// FLOPs of an op on one rank: of matrix products and of the attention scores that causality leaves; all else counts as none.
double flops(const Program&, const Op&);
// What the programs execute, per step and whole job.
double hardware_flops(const Compiled&, const Grid&);

// FLOPs of the parts of each chunk, from the ops of its first microbatch.
std::vector<ActionCosts> chunk_costs(const Compiled&);

// A move between ranks: what it costs the rank at a coordinate, by the formula below, and how many messages follow each other round the ring.
struct MoveCost {
    AxisSet axes;
    std::int64_t bytes = 0, hops = 0;
};
MoveCost move_cost(const Program&, const Op&, const Coordinate&);

// Bytes per step that count for the rank at this coordinate, by set of axes. A byte counts for the rank whose data it is, once per peer
// that it goes to: with n members, my slice `mine` of `whole` bytes: reduce-scatter whole - mine, all-gather mine (n - 1),
// all-reduce the sum of both, all-to-all what goes to others, ring step and send the buffer.
std::map<std::string, std::int64_t> wire_bytes(const Program&, const Coordinate&);

// The same bytes if no gradient were compressed: each sum by a reduce-scatter in place of an exchange of packets.
std::map<std::string, std::int64_t> uncompressed_wire_bytes(const Program&, const Coordinate&);

// Bytes per step that a rank moves between tiers, by queue: from host memory, to it, and between it and disk.
std::map<Queue, std::int64_t> tier_bytes(const Program&);

// A measure by which changes of one input are put in order: FLOPs per rank, the pipeline's idle time among them, and for each byte on the wire of
// the rank that moves most as many as a machine does meanwhile (flops_per_byte: 1 TFLOP/s beside 10 GB/s). Knows no overlap.
constexpr double flops_per_byte = 100;
constexpr double disk_penalty = 5;  // 2 GB/s
double step_cost(const Compiled&);

}  // namespace quadrille

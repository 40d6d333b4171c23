// Compressed gradients: packing, the sum of packets, and the residual at the end of the step.
#include "base/error.hpp"
#include "base/random.hpp"
#include "runtime/bindings.hpp"

namespace quadrille {
namespace {

// Of a rank's random numbers: what its own gradient of the unit is, among all that are packed in a step. Not of its stage: a unit draws the same
// whatever the schedule.
std::uint64_t packet_stream(const Call& c, std::int64_t number) {
    std::uint64_t place = 0;
    for (const Axis a : {Axis::replica, Axis::shard, Axis::sp, Axis::tp, Axis::tq})
        place = place * static_cast<std::uint64_t>(c.program.grid().extent(a)) + static_cast<std::uint64_t>(c.at[a]);
    return random_key(hash_text("packets"), hash_text(c.program.flats[static_cast<std::size_t>(c.attributes().unit)].unit), number, place);
}

// Which of the step's packings of the unit this is.
std::int64_t number_of(const Program& p, const Op& op) {
    std::int64_t number = 0;
    for (const Op* earlier = p.ops.data(); earlier != &op; ++earlier) number += earlier->kind == Kind::compress && earlier->unit == op.unit;
    return number;
}

Kernel bind_compress(const Call& c) {
    Compress pack;
    pack.packing = c.attributes().packing;
    pack.slices = c.program.grid().size(c.attributes().over);
    pack.count = c.in_count(0) / pack.slices;
    pack.gradient = c.in[0];
    pack.type = c.in_tensor(0).dtype;
    if (c.in.size() > 1) {
        pack.residual = reinterpret_cast<const float*>(c.in[1]);
        pack.unsent = reinterpret_cast<float*>(c.out[1]);
    }
    require(c.out_count(0) == pack.slices * packet_bytes(pack.packing, pack.count), "runtime: packets are of another size than their slices need");
    const std::uint64_t stream = packet_stream(c, number_of(c.program, c.op));
    return [=, to = c.out[0], power = c.attributes().loss_scale, &k = c.kernels](const StepInputs& s) {
        Compress now = pack;
        now.scale = static_cast<float>(scaled(1.0, s, power));
        now.key = random_key(s.seed, s.step, stream);
        k.compress(now, to);
    };
}

Kernel bind_decompress(const Call& c) {
    const std::int64_t packets = c.program.grid().size(c.attributes().over);
    return [=, packing = c.attributes().packing, from = c.in[0], to = c.out[0], type = c.out_tensor(0).dtype,
            count = c.out_count(0), &k = c.kernels](const StepInputs&) {
        k.decompress(packing, from, packets, to, type, count);
    };
}

// A step that does not count leaves the residual as it was.
Kernel bind_retain(const Call& c) {
    require(c.in[0] == c.out[0], "runtime: a residual does not share its storage");
    return [count = c.in_count(0), residual = reinterpret_cast<float*>(c.out[0]), unsent = reinterpret_cast<const float*>(c.in[1]),
            norm2 = reinterpret_cast<const double*>(c.in[2]),
            squares = reinterpret_cast<double*>(c.out[1]), workspace = c.workspace, &k = c.kernels](const StepInputs&) {
        k.retain(residual, unsent, count, norm2, squares, workspace);
    };
}

}  // namespace

std::int64_t retain_workspace(const Program& program, const Op& op, const Kernels& kernels) {
    return kernels.sum_squares_workspace(local_count(program.grid(), program.type(program.inputs(op)[0])), 1);
}

Kernel bind_packets(const Call& c) {
    switch (c.op.kind) {
        case Kind::compress: return bind_compress(c);
        case Kind::decompress: return bind_decompress(c);
        default: return bind_retain(c);
    }
}

}  // namespace quadrille

// Typing rules of gradients that travel packed: compress, the all-to-all of packets (an ordinary Redistribute), decompress, retain.
//
// Packets of a unit's gradient are bytes [receiver, sender, packet]: a rank has made one row of them, so the sender's dim is cut over the axes of
// the exchange; afterwards the receiver's dim is, and each rank has everyone's packet of its own slice. What one rank has not sent is its own, like
// its gradient: Partial over those axes.
#include "ir/program.hpp"
#include "ir/rules.hpp"

namespace quadrille {
namespace {

static_assert(flat_block % packing_block == 0, "slices of units are whole blocks of packets");

// Packets of a gradient of which each rank will have the sum of `slice`; made, as the senders have them.
TensorType packets_of(const Grid& grid, const TensorType& slice, const Attributes& a, AxisSet outer) {
    const std::int64_t ranks = grid.size(a.over), count = local_count(grid, slice);
    demand(count % packing_block == 0, fmt::format("packets: slices of {} elements are not whole blocks of {}", count, packing_block));
    TensorType packets({ranks, ranks, packet_bytes(a.packing, count)}, DType::u8, slice.place, Book::buffers);
    packets.place.cuts = {};
    packets.place.cuts[1] = Cuts::along(grid, a.over);
    packets.place.varies = slice.place.varies | outer;
    packets.tier = slice.tier;
    packets.covers = slice.covers;
    return packets;
}

}  // namespace

Types compress_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 1 || in.size() == 2, "compress: a gradient, and what earlier ones left unsent");
    const TensorType& g = in[0];
    demand(a.packing.method != PackingMethod::none && !a.over.empty(), "compress: no method, or no ranks to exchange packets with");
    demand(g.dims == 1 && (g.dtype == DType::f32 || half_width(g.dtype)) && g.covers != 0, "compress: of what is no gradient of a unit");
    demand(g.place.partial_sum.contains(a.over), "compress: of a gradient that is not Partial over the ranks that would exchange it");
    TensorType slice = g;
    slice.place.partial_sum = g.place.partial_sum - a.over;
    slice.place.cuts[0] = g.place.cuts[0].then(Cuts::along(tables.grid(), a.over));
    demand(divides(tables.grid(), slice), "compress: the gradient has no equal slices");
    Types out = {packets_of(tables.grid(), slice, a, g.place.cut_axes())};
    if (in.size() == 1) return out;
    TensorType unsent = g.of(DType::f32);
    unsent.covers = 0;
    demand(in[1].same_place(unsent) && in[1].covers == 0, "compress: gradient and residual lie in different places");
    out.push_back(unsent);
    return out;
}

Types decompress_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 1 && in[0].dims == 3 && in[0].dtype == DType::u8, "decompress: of what are no packets");
    TensorType sum = tables.type(a.types.at(0));
    const Cuts along = Cuts::along(tables.grid(), a.over);
    Cuts outer;
    for (const Cut& c : sum.place.cuts[0])
        if (!a.over.has(c.axis)) outer.push_back(c);
    demand(sum.dims == 1 && !along.empty() && sum.place.cuts[0] == outer.then(along), "decompress: not to the slices of those who exchange packets");
    TensorType packets = packets_of(tables.grid(), sum, a, outer.axes());
    std::swap(packets.place.cuts[0], packets.place.cuts[1]);
    demand(in[0].same_place(packets), "decompress: packets of another size, or of other ranks, than the slice's");
    sum.covers = in[0].covers;
    return {sum};
}

Types retain_rule(Tables& tables, const Op&, const Attributes&, Inputs in) {
    demand(in.size() == 3 && in[0].dims == 1 && in[0].dtype == DType::f32 && in[0].same_place(in[1]),
           "retain: two residuals of one place, and the norm");
    demand(in[2].dims == 0 && in[2].dtype == DType::f64 && in[2].place.partial().empty(), "retain: by a norm that is Partial");
    TensorType squares({}, DType::f64, {}, Book::buffers);
    squares.tier = in[0].tier;
    for (const Axis x : all_axes) squares.place.partial_sum |= tables.grid().real(x);  // each rank has its own
    return {in[0], squares};
}

}  // namespace quadrille

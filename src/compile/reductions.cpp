#include "compile/reductions.hpp"

#include "compile/exchange.hpp"
#include "compile/update.hpp"

namespace quadrille {
namespace {

Where step_where(const Homes& homes, int u) { return {Part::step, homes.name(u), -1, -1}; }

// That hold the same unit.
AxisSet state_axes(const Program& p) { return p.grid().real(data_axes | AxisSet(Axis::sp)); }

bool has_copies(const Program& p) { return p.grid().extent(Axis::replica) > 1; }

// The sum of a compressed gradient at `to`: this rank's slice, or whole again. What is unsent stands where the gradient stood; the sum then has
// room of its own.
TensorId exchanged(Program& p, Homes& homes, const Model& model, int u, TensorId g, const Placement& to) {
    const bool copies = homes.exchanged.has(Axis::replica);
    Placement slice = p.type(g).place;
    slice.cuts[0] = slice.cuts[0].then(Cuts::along(p.grid(), homes.exchanged));
    slice.partial_sum = slice.partial_sum - homes.exchanged;
    const bool keeps = homes.unit(u).residual >= 0, again = !(to == slice);
    const bool apart = again && (keeps || !p.tensor(g).slice_axes.empty());
    const TensorId room = apart ? p.declare(p.name(g), p.type(g).placed(to).in(Book::gradients)) : g;
    Program::Options o = gradient_like(p, g);
    if (!copies && (again || !keeps)) o.storage = {slice_place(p, room, slice)};  // slices of slices lie otherwise than one behind the other
    const TensorId sum = exchange(p, homes, model, u, g, o);
    o.storage = {room};
    return p.to(sum, to, step_where(homes, u), o);
}

}  // namespace

Program::Options gradient_like(const Program& p, TensorId t) {
    Program::Options o;
    o.book = Book::gradients;
    o.names = {p.tables->name(p.tensors[static_cast<std::size_t>(t)].name)};
    return o;
}

Placement reduced_over(const Program& p, TensorId g, const Cuts& cut) {
    Placement to = p.type(g).place;
    to.cuts[0] = cut;
    to.partial_sum = to.partial_sum - cut.axes();
    return to;
}

void reduce_stale(Program& p, Homes& homes) {
    for (int u = homes.units(); u-- > 0;) {
        const TensorId stale = homes.unit(u).stale;
        if (stale < 0) continue;
        TensorId g = stale;
        const Where where = step_where(homes, u);
        Placement to = reduced_over(p, g, has_copies(p) ? homes.slices : homes.optimizer.cut);
        g = p.to(g, to, where, gradient_like(p, g));
        to.partial_sum = to.partial_sum - state_axes(p);
        g = g == stale ? p.to(g, to, where, gradient_like(p, g)) : move_in_place(p, g, to, where);
        to.cuts[0] = homes.optimizer.cut;
        g = p.to(g, to, where, gradient_like(p, g));
        if (g == stale) g = p.add(Kind::copy, {g}, {}, where, gradient_like(p, g))[0];  // nobody to sum with
        homes.unit(u).reduced = g;
    }
}

void finish_reduction(Program& p, Homes& homes, const Model& model, int u) {
    TensorId& g = homes.unit(u).reduced;
    const TensorId before = g;
    const Where where = step_where(homes, u);
    const bool packed = homes.compressed(u) && p.type(g).place.partial_sum.contains(homes.exchanged);
    const Placement cut = reduced_over(p, g, has_copies(p) ? homes.slices : homes.optimizer.cut);
    if (!(cut == p.type(g).place) && (has_copies(p) || !packed)) {
        Program::Options o = gradient_like(p, g);
        o.storage = {slice_place(p, g, cut)};
        g = p.to(g, cut, where, o);
    }
    Placement summed = cut;
    summed.partial_sum = summed.partial_sum - state_axes(p);
    g = packed ? exchanged(p, homes, model, u, g, summed) : move_in_place(p, g, summed, where);
    if (!homes.optimizer.cut.empty() || cut.cuts[0].empty()) return;
    Program::Options o = gradient_like(p, g);
    if (!packed || homes.unit(u).residual < 0) o.storage = {before};
    summed.cuts[0] = {};
    g = p.to(g, summed, where, o);
}

}  // namespace quadrille

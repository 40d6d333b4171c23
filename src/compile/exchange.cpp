#include "compile/exchange.hpp"

namespace quadrille {
namespace {

Program::Options named(Book book, std::string name) {
    Program::Options o;
    o.book = book;
    o.names = {std::move(name)};
    return o;
}

}  // namespace

TensorId exchange(Program& p, Homes& homes, const Model& model, int u, TensorId g, const Program::Options& o) {
    UnitState& unit = homes.unit(u);
    const std::string& name = homes.flat(u).unit;
    const Where where{Part::step, homes.name(u), -1, -1};
    Attributes a;
    a.unit = u;
    a.over = homes.exchanged;
    a.packing = homes.packing;
    a.loss_scale = model.scales_loss && unit.unsent >= 0 ? 1 : 0;
    TensorType sum = p.type(g);
    sum.place.cuts[0] = sum.place.cuts[0].then(Cuts::along(p.grid(), a.over));
    sum.place.partial_sum = sum.place.partial_sum - a.over;
    sum.covers = 0;

    std::vector<TensorId> in = {g};
    Program::Options made = named(Book::buffers, "packets." + name);
    if (unit.unsent >= 0) {
        in.push_back(p.to_tier(unit.unsent, Tier::device, where, named(Book::buffers, "r." + name)));
        made.storage = {-1, p.type(g).dtype == DType::f32 ? g : -1};
        made.names.push_back("e." + name);
    }
    const auto compressed = p.add(Kind::compress, in, a, where, made);
    if (unit.unsent >= 0) unit.unsent = p.to_tier(compressed[1], homes.working_tier(), where, named(Book::optimizer, "e." + name));

    Placement received = p.type(compressed[0]).place;
    std::swap(received.cuts[0], received.cuts[1]);
    const TensorId packets = p.to(compressed[0], received, where, named(Book::buffers, "packets." + name));
    a.types = {p.tables->intern(sum)};
    a.loss_scale = 0;
    return p.add(Kind::decompress, {packets}, a, where, o)[0];
}

void retain(Program& p, const Homes& homes, int u, TensorId norm) {
    const UnitState& unit = homes.unit(u);
    const std::string& name = homes.flat(u).unit;
    const Where where{Part::step, homes.name(u), -1, -1};
    const TensorId before = p.to_tier(unit.residual, homes.working_tier(), where, named(Book::buffers, p.name(unit.residual)));
    Attributes a;
    a.unit = u;
    Program::Options o = named(Book::buffers, p.name(unit.residual) + "'");
    o.names.push_back("residual2." + name);
    o.storage = {before, -1};
    const auto retained = p.add(Kind::retain, {before, unit.unsent, norm}, a, where, o);
    const TensorId after = retained[0];
    p.residual_squares.push_back(retained[1]);
    Program::Options home = named(Book::optimizer, p.name(after));
    home.storage = {unit.residual};
    p.to_tier(after, p.type(unit.residual).tier, where, home);
}

}  // namespace quadrille

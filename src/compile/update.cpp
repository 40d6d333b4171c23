#include "compile/update.hpp"

#include "base/error.hpp"
#include "compile/exchange.hpp"

#include <algorithm>
#include <set>

namespace quadrille {
namespace {

Where norm_where(Program& p) { return {Part::step, p.tables->intern("norm"), -1, -1}; }

Program::Options scalars() {
    Program::Options o;
    o.book = Book::buffers;
    return o;
}

TensorId sum_of_scalars(Program& p, TensorId a, TensorId b, const std::string& name = "") {
    Attributes both;
    both.signature = ",->";
    Program::Options o = scalars();
    if (!name.empty()) o.names = {name};
    return p.add(Kind::add, {a, b}, both, norm_where(p), o)[0];
}

// This rank's slice of a flat tensor, where it stands; the tensor itself if it is cut so already.
TensorId sliced(Program& p, TensorId x, const Placement& cut, const Where& where) {
    if (p.type(x).place == cut) return x;
    Program::Options o;
    o.book = p.type(x).book;
    o.storage = {slice_place(p, x, cut)};
    o.names = {p.name(x)};
    return p.to(x, cut, where, o);
}

class Update {
  public:
    Update(Program& p, Homes& homes, const Model& model, const Config& config) : p_(p), homes_(homes), model_(model), config_(config) {}

    void run() {
        for (int u = 0; u < homes_.units(); ++u)
            if (homes_.trained(u)) trained_.push_back(u);
        for (const int u : trained_) {
            require(homes_.unit(u).reduced >= 0, "place: unit " + homes_.flat(u).unit + " has no gradient");
            if (homes_.flat(u).tied) sum_over_ends(u);
        }
        norm();
        for (const int u : trained_) {
            if (homes_.unit(u).residual >= 0) retain(p_, homes_, u, norm_in(homes_.working_tier()));
            update(u);
        }
    }

  private:
    void sum_over_ends(int u) {
        TensorId& g = homes_.unit(u).reduced;
        Placement both = p_.type(g).place;
        both.partial_sum = both.partial_sum - p_.grid().real(Axis::pp);
        both.holders = Holders::ends;
        g = move_in_place(p_, g, both, {Part::step, homes_.name(u), -1, -1});
    }

    // The squared norm of the whole gradient. Each unit's squares are summed over the ranks of its coordinate, then every coordinate gets
    // every unit's sum, and all add them in the model's order: the same additions wherever a unit lives, and at every ZeRO stage, whose slices
    // these are. All units travel in one call.
    void norm() {
        std::vector<TensorId> squares;
        for (const int u : trained_) squares.push_back(homes_.unit(u).squares >= 0 ? homes_.unit(u).squares : unit_squares(p_, homes_, model_, u));
        Placement here;  // whole on the coordinate
        here.partial_sum = p_.grid().real(Axis::pp);
        squares = all_to(squares, here);
        if (p_.grid().extent(Axis::pp) > 1) squares = everywhere(squares, here);
        TensorId total = squares[0];
        for (std::size_t u = 1; u < squares.size(); ++u) {
            total = sum_of_scalars(p_, total, squares[u], u + 1 == squares.size() ? "norm2" : "");
        }
        p_.norm = model_.scales_loss ? unscaled(total) : total;
    }

    // The squares are those of gradients of the scaled loss.
    TensorId unscaled(TensorId squares) {
        Attributes a;
        a.loss_scale = -2;
        Program::Options o = scalar_;
        o.names = {"norm2.unscaled"};
        return p_.add(Kind::scale_loss, {squares}, a, where_, o)[0];
    }

    // Several scalars of one placement moved together.
    std::vector<TensorId> all_to(const std::vector<TensorId>& scalars, const Placement& to) {
        if (scalars.empty() || p_.type(scalars[0]).place == to) return scalars;
        Attributes a;
        a.types = {p_.tables->intern(p_.type(scalars[0]).placed(to))};
        return p_.add(Kind::redistribute, scalars, a, where_, scalar_);
    }

    // The sums of all trained units of the model, on every pp coordinate: those of other coordinates are zero here, where sums lie at `place`.
    std::vector<TensorId> everywhere(const std::vector<TensorId>& here, const Placement& place) {
        Attributes none;
        none.types = {p_.tables->intern(TensorType({}, DType::f64, place, Book::buffers))};
        std::vector<TensorId> all;
        for (const std::string& unit : trained_units(model_)) {
            const auto it = std::find_if(trained_.begin(), trained_.end(), [&](int u) { return homes_.flat(u).unit == unit; });
            all.push_back(it != trained_.end() ? here[static_cast<std::size_t>(it - trained_.begin())]
                                               : p_.add(Kind::zero, {}, none, where_, scalar_)[0]);
        }
        Placement to;
        to.holders = Holders::all;
        return all_to(all, to);
    }

    // x in this tier, in memory of its own if it is in another.
    TensorId brought(TensorId x, Tier tier, const Where& where) {
        Program::Options o;
        o.book = Book::buffers;
        o.names = {p_.name(x)};
        return p_.to_tier(x, tier, where, o);
    }

    // x goes to where `home` stands, unless it was made there. Returns x there.
    TensorId put(TensorId x, TensorId home, const Where& where) {
        Program::Options o;
        o.book = p_.type(home).book;
        o.storage = {home};
        o.names = {p_.name(x)};
        return p_.to_tier(x, p_.type(home).tier, where, o);
    }

    TensorId norm_in(Tier tier) {
        TensorId& norm = norms_[static_cast<std::size_t>(tier)];
        if (norm < 0) norm = brought(p_.norm, tier, where_);
        return norm;
    }

    void update(int u) {
        const UnitState& unit = homes_.unit(u);
        const Where where{Part::step, homes_.name(u), -1, -1};
        const Tier tier = homes_.working_tier();
        Attributes a;
        a.unit = u;
        a.microbatches = static_cast<int>(config_.train.gradient_accumulation_steps);
        a.clip = config_.train.clip_grad;
        a.loss_scale = model_.scales_loss ? -1 : 0;
        a.stale = unit.stale >= 0;
        const TensorId weights = weights_to_update(unit.weights, tier, where);
        std::vector<TensorId> in = {weights, brought(unit.reduced, tier, where), norm_in(tier)}, state = {weights}, homes = {unit.weights};
        for (const TensorId t : {unit.master, unit.m, unit.v}) {
            if (t < 0) continue;
            in.push_back(brought(t, tier, where));
            state.push_back(in.back());
            homes.push_back(t);
        }
        Program::Options o;
        o.storage = state;
        for (const TensorId t : state) o.names.push_back(p_.name(t) + "'");
        const auto updated = p_.add(config_.optimizer.type == OptimizerType::adamw ? Kind::adamw : Kind::sgd, in, a, where, o);
        put_weights(updated[0], unit.weights, where);
        for (std::size_t k = 1; k < updated.size(); ++k) put(updated[k], homes[k], where);
    }

    Placement as_optimizer(TensorId weights) const {
        Placement cut = p_.type(weights).place;
        cut.cuts[0] = homes_.optimizer.cut;
        return cut;
    }

    TensorId weights_to_update(TensorId weights, Tier tier, const Where& where) {
        const Placement cut = as_optimizer(weights);
        if (p_.type(weights).tier == Tier::nvme) weights = brought(weights, Tier::host, where);  // whole: a slice of it need not lie on a block
        return brought(sliced(p_, weights, cut, where), tier, where);
    }

    // New weights go home; where they are kept whole and were updated in slices, they are gathered, on the device as all is.
    void put_weights(TensorId updated, TensorId home, const Where& where) {
        const TensorType kept = p_.type(home);
        if (p_.type(updated).place == kept.place) { put(updated, home, where); return; }
        Program::Options o;
        o.names = {p_.name(updated)};
        if (kept.tier == Tier::device) {
            o.book = Book::weights;
            o.storage = {home};
            p_.to(put(updated, slice_place(p_, home, as_optimizer(home)), where), kept.place, where, o);
            return;
        }
        o.book = Book::buffers;
        put(p_.to(brought(updated, Tier::device, where), kept.place, where, o), home, where);
    }

    Program& p_;
    Homes& homes_;
    const Model& model_;
    const Config& config_;
    const Where where_ = norm_where(p_);
    const Program::Options scalar_ = scalars();
    std::vector<int> trained_;   // units
    std::array<TensorId, tier_count> norms_ = {-1, -1, -1};  // the norm, by tier
};

}  // namespace

TensorId slice_place(Program& p, TensorId x, const Placement& cut) {
    const Tensor t = p.tensors[static_cast<std::size_t>(x)];
    return p.declare("place", p.type(x).placed(cut), -1, t.buffer, t.offset, cut.cuts[0].axes());
}

TensorId move_in_place(Program& p, TensorId x, const Placement& to, const Where& where) {
    Program::Options o;
    o.book = p.type(x).book;
    o.storage = {x};
    o.names = {p.name(x)};
    return p.to(x, to, where, o);
}

TensorId unit_squares(Program& p, const Homes& homes, const Model& model, int u) {
    const Where where = norm_where(p);
    Placement cut = p.type(homes.unit(u).reduced).place;
    cut.cuts[0] = homes.slices;
    const TensorId slice = sliced(p, homes.unit(u).reduced, cut, where);
    Placement partial;
    partial.partial_sum = p.grid().real(tensor_axes | zero_axes | AxisSet(Axis::pp));
    std::set<unsigned> kinds;  // of parameters: the sets of axes that cut them. Once per kind, as the types demand
    for (const FlatSegment& s : homes.flat(u).segments)
        kinds.insert(p.tables->type(model.parameters[static_cast<std::size_t>(s.parameter)].type).place.cut_axes().bits);
    TensorId total = -1;
    for (const unsigned kind : kinds) {
        Attributes a;
        a.unit = u;
        a.which = AxisSet::of_bits(kind);
        const TensorId squares = p.to_tier(p.add(Kind::sum_squares, {slice}, a, where, scalars())[0], Tier::device, where, scalars());
        // What is whole over some axes is kept by the first rank along them.
        const TensorId q = p.to(squares, partial, where, scalars());
        total = total < 0 ? q : sum_of_scalars(p, total, q);
    }
    return total;
}

void update_weights(Program& p, Homes& homes, const Model& model, const Config& config) { Update(p, homes, model, config).run(); }

}  // namespace quadrille

#include "compile/place.hpp"

#include "base/error.hpp"
#include "compile/exchange.hpp"
#include "compile/homes.hpp"
#include "compile/reductions.hpp"
#include "compile/update.hpp"
#include "compile/weights.hpp"

#include <map>
#include <utility>

namespace quadrille {
namespace {

class Place {
  public:
    Place(Step step, const Model& model, const Config& config, int kept)
        : step_(std::move(step)), p_(step_.program), ops_(std::exchange(p_.ops, {})), model_(model), config_(config), homes_(step_, model, config),
          weights_(step_, homes_, model, ops_, kept), microbatches_(static_cast<int>(config.train.gradient_accumulation_steps)) {}

    Program run() {
        find_last_contributions();
        if (step_.training) reduce_stale(p_, homes_);
        for (std::size_t i = 0; i < ops_.size(); ++i) rewrite(i);
        if (step_.training) update_weights(p_, homes_, model_, config_);
        mean_loss();
        p_.tokens = step_.tokens;
        return std::move(p_);
    }

  private:
    const Parameter& parameter(int index) const { return model_.parameters[static_cast<std::size_t>(index)]; }
    Where step_where(int u) const { return {Part::step, homes_.name(u), -1, -1}; }

    // ---- the step's ops ----
    // Running sums of one group are versions of each other: over all of the step, or, where gradients are kept in slices, over one microbatch.
    int group(int microbatch) const { return homes_.gradients.cut.empty() ? -1 : microbatch; }
    // What a running sum on the device is: the gradient itself, or on its way to it.
    Book running() const { return homes_.gradients.cut.empty() ? Book::gradients : Book::buffers; }

    void find_last_contributions() {
        for (std::size_t i = 0; i < ops_.size(); ++i)
            for (const TensorId t : p_.outputs(ops_[i]))
                if (const auto it = step_.weight_gradients.find(t); it != step_.weight_gradients.end()) {
                    const int u = homes_.at(it->second.parameter).unit;
                    last_[{u, ops_[i].microbatch}] = i;
                    last_of_unit_[u] = i;
                }
    }

    void rewrite(std::size_t i) {
        const Op& op = ops_[i];
        for (std::uint32_t k = op.first; k < op.first + op.inputs; ++k) {
            const TensorId t = p_.operands[k];
            if (const auto it = step_.parameters.find(t); it != step_.parameters.end()) {
                const TensorId w = weights_.read(it->second, i);  // may move the operands
                p_.operands[k] = w;
            }
        }
        if (op.part != Part::backward_weight || !step_.weight_gradients.contains(p_.outputs(op)[0])) { p_.ops.push_back(op); return; }
        const int u = contribute(op);
        if (last_.at({u, op.microbatch}) == i) complete(u, op.microbatch, last_of_unit_.at(u) == i);
    }

    // ---- gradients ----
    // The unit's flat buffer on the device in which this microbatch's gradients are made.
    BufferId gradient_buffer(int u, int microbatch) {
        if (homes_.gradients.at_hand()) return homes_.unit(u).gradient;
        const auto [it, fresh] = buffers_.try_emplace({u, microbatch}, -1);
        if (fresh) it->second = p_.add_buffer("g." + homes_.flat(u).unit, microbatch, homes_.flat_type(u, model_.weight_gradient, running(), {}));
        return it->second;
    }

    // The op writes its gradients into the unit's flat buffer, or adds them to what is there. Returns the unit.
    int contribute(const Op& op) {
        std::vector<TensorId> in(p_.inputs(op).begin(), p_.inputs(op).end());
        const std::vector<TensorId> made(p_.outputs(op).begin(), p_.outputs(op).end());
        const Where where{op.part, op.unit, op.microbatch, op.action};
        Program::Options o;
        o.book = running();
        o.writes_sum = true;
        int u = 0;
        for (const TensorId t : made) {
            const WeightGradient& g = step_.weight_gradients.at(t);
            u = homes_.at(g.parameter).unit;
            o.use = g.use;
            o.names.push_back("d." + parameter(g.parameter).name);
            const TensorId earlier = running_sum(g.parameter, where);
            o.adds = earlier >= 0;
            if (o.adds) in.push_back(earlier);
            // The place of the gradient: a tensor of its type in the flat buffer; the op's own output is declared there too.
            o.storage.push_back(o.adds ? earlier : gradient_place(g.parameter, op.microbatch, p_.type(t).in(o.book)));
        }
        const auto out = p_.add(op.kind, in, p_.attributes(op), where, o);
        for (std::size_t k = 0; k < made.size(); ++k) version_[{step_.weight_gradients.at(made[k]).parameter, group(op.microbatch)}] = out[k];
        return u;
    }

    // The group's sum for the parameter so far, on the device; -1: none yet.
    TensorId running_sum(int index, const Where& where) {
        const auto it = version_.find({index, group(where.microbatch)});
        if (it == version_.end()) return -1;
        TensorType here = p_.type(it->second);
        if (here.tier == Tier::device) return it->second;
        here.tier = Tier::device;
        Program::Options o = gradient_like(p_, it->second);
        o.storage = {gradient_place(index, where.microbatch, here)};
        return p_.to_tier(it->second, Tier::device, where, o);
    }

    TensorId gradient_place(int index, int m, const TensorType& t) {
        const auto [u, segment] = homes_.at(index);
        return p_.declare("place", t, -1, gradient_buffer(u, m), homes_.flat(u).segments[static_cast<std::size_t>(segment)].offset);
    }

    // ---- reductions ----
    // All gradients of the microbatch are in. What must travel does: slices are reduced and summed, running sums go home to another tier.
    void complete(int u, int microbatch, bool last) {
        UnitState& unit = homes_.unit(u);
        const bool away = homes_.gradients.tier != Tier::device;
        if (!homes_.gradients.cut.empty()) {
            reduce(u, microbatch);
            if (away && !last) unit.reduced = sent_home(unit.reduced, unit.gradient, 0, step_where(u));
        } else if (last && unit.stale >= 0) {
            joined(u, microbatch);  // for the next step
            return;
        } else if (last) {
            unit.reduced = joined(u, microbatch);
        } else if (away) {
            for (const FlatSegment& s : homes_.flat(u).segments) {
                TensorId& sum = version_.at({s.parameter, -1});
                sum = sent_home(sum, unit.gradient, s.offset, step_where(u));
            }
        }
        if (!last) return;
        finish_reduction(p_, homes_, model_, u);
        // Squared while it is at hand. Ends of a pipeline have yet to add theirs.
        if (!away || (homes_.flat(u).tied && p_.grid().extent(Axis::pp) > 1)) return;
        unit.squares = unit_squares(p_, homes_, model_, u);
        unit.reduced = sent_home(unit.reduced, unit.gradient, 0, step_where(u));
    }

    // One microbatch's gradients of a unit become one flat tensor, are reduced, and join the earlier ones' sum.
    void reduce(int u, int m) {
        UnitState& unit = homes_.unit(u);
        const TensorId g = joined(u, m);
        const bool first = unit.reduced < 0;
        const Placement cut = reduced_over(p_, g, homes_.gradients.cut);
        Program::Options o = gradient_like(p_, g);
        if (!first) o.book = Book::buffers;
        if (first && homes_.gradients.tier == Tier::device) o.storage = {p_.declare("place", p_.type(g).placed(cut).in(o.book), -1, unit.gradient)};
        const bool packed = homes_.compressed(u) && homes_.exchanged == cut.cuts[0].axes();
        const TensorId slice = packed ? exchange(p_, homes_, model_, u, g, o) : p_.to(g, cut, step_where(u), o);
        unit.reduced = first ? slice : summed(p_.to_tier(unit.reduced, Tier::device, step_where(u), gradient_like(p_, unit.reduced)), slice, u);
    }

    // A running sum goes to its place in the unit's buffer in another tier.
    TensorId sent_home(TensorId t, BufferId buffer, std::int64_t offset, const Where& where) {
        TensorType type = p_.type(t).in(Book::gradients);
        type.tier = homes_.gradients.tier;
        Program::Options o = gradient_like(p_, t);
        o.storage = {p_.declare("place", type, -1, buffer, offset)};
        return p_.to_tier(t, type.tier, where, o);
    }

    TensorId summed(TensorId total, TensorId g, int u) {
        Program::Options o = gradient_like(p_, total);
        o.storage = {total};
        return p_.add(Kind::accumulate, {total, g}, {}, step_where(u), o)[0];
    }

    TensorId joined(int u, int m) {
        const Flat& flat = homes_.flat(u);
        const Where where = step_where(u);
        reduce_over_tensor(flat, group(m), where);
        Attributes a;
        a.unit = u;
        a.microbatches = homes_.gradients.cut.empty() ? microbatches_ : 1;
        a.tied = flat.tied;
        Program::Options o;
        o.book = running();
        a.types = {p_.tables->intern(homes_.flat_type(u, model_.weight_gradient, o.book, {}))};
        o.names = {"g." + flat.unit};
        o.storage = {p_.declare("place", p_.tables->type(a.types[0]), -1, gradient_buffer(u, m))};
        std::vector<TensorId> views;
        for (const FlatSegment& s : flat.segments) views.push_back(version_.at({s.parameter, group(m)}));
        return p_.add(Kind::join, views, a, where, o)[0];
    }

    // One call for all views of like placement that are Partial over tp; they lie next to each other.
    void reduce_over_tensor(const Flat& flat, int m, const Where& where) {
        std::map<std::pair<unsigned, TypeId>, std::vector<int>> groups;  // by axes and by the placement to reach
        for (const FlatSegment& s : flat.segments) {
            const TensorType& t = p_.type(version_.at({s.parameter, m}));
            const AxisSet axes = t.place.partial_sum & tensor_axes;
            if (axes.empty()) continue;
            TensorType to({}, t.dtype, t.place, t.book);
            to.place.partial_sum = t.place.partial_sum - axes;
            groups[{axes.bits, p_.tables->intern(to)}].push_back(s.parameter);
        }
        for (const auto& [key, members] : groups) {
            Attributes a;
            a.types = {key.second};
            Program::Options o;
            o.book = running();
            std::vector<TensorId> in;
            for (const int index : members) {
                in.push_back(version_.at({index, m}));
                o.names.push_back("d." + parameter(index).name);
            }
            o.storage = in;
            const auto out = p_.add(Kind::redistribute, in, a, where, o);
            for (std::size_t k = 0; k < members.size(); ++k) version_[{members[k], m}] = out[k];
        }
    }

    void mean_loss() {
        if (step_.losses.empty()) return;
        const Where where{Part::step, p_.tables->intern("loss"), -1, -1};
        Program::Options o;
        o.book = Book::buffers;
        TensorId total = step_.losses[0];
        for (std::size_t m = 1; m < step_.losses.size(); ++m) total = p_.add(Kind::accumulate, {total, step_.losses[m]}, {}, where, o)[0];
        total = p_.to(total, Placement{}, where, o);
        Attributes a;
        a.microbatches = microbatches_;
        o.names = {"loss"};
        p_.loss = p_.add(Kind::mean_loss, {total, step_.inverse_tokens}, a, where, o)[0];
    }

    Step step_;
    Program& p_;
    const std::vector<Op> ops_;                               // of the step, before
    const Model& model_;
    const Config& config_;
    Homes homes_;
    Weights weights_;
    const int microbatches_;
    std::map<std::pair<int, int>, TensorId> version_;         // parameter, group -> its gradient so far
    std::map<std::pair<int, int>, BufferId> buffers_;         // unit, microbatch
    std::map<std::pair<int, int>, std::size_t> last_;         // unit, microbatch -> op after which every contribution is in
    std::map<int, std::size_t> last_of_unit_;
};

}  // namespace

Program place(Step step, const Model& model, const Config& config, int kept) { return Place(std::move(step), model, config, kept).run(); }

}  // namespace quadrille

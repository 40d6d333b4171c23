#include "compile/place.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace quadrille {
namespace {

class Place {
  public:
    Place(Step step, const Model& model, const Config& config)
        : step_(std::move(step)), p_(step_.program), model_(model), config_(config), grid_(p_.grid()), train_(!step_.weight_gradients.empty()),
          microbatches_(static_cast<int>(config.train.gradient_accumulation_steps)) {
        zero_ = Cuts::along(grid_, zero_axes);
        state_axes_ = grid_.real(data_axes | AxisSet(Axis::sp));
    }

    Program run() {
        const std::vector<Op> ops = std::move(p_.ops);
        p_.ops.clear();
        find_partial_over_tensor();
        for (const auto& [unit, indices] : units()) add_flat(unit, indices);
        for (std::size_t u = 0; u < p_.flats.size(); ++u) declare_state(static_cast<int>(u));
        find_last_contributions(ops);
        for (std::size_t i = 0; i < ops.size(); ++i) rewrite(ops, i);
        if (train_) finish_step();
        mean_loss();
        p_.tokens = step_.tokens;
        return std::move(p_);
    }

  private:
    struct Unit {
        TensorId weights = -1, master = -1, m = -1, v = -1;  // flat buffers
        BufferId gradient = -1;
        TensorId reduced = -1;                               // the whole gradient, when it is
        std::size_t last = 0;                                // op after which every contribution is in
    };

    // ---- flat buffers ----
    // Parameters whose gradient is Partial over tp come first in their unit, so that they are reduced in one call. Asked of the chunks, not
    // of this step, so that evaluation, which has no gradients, lays the weights out as training does.
    void find_partial_over_tensor() {
        for (const Chunk& chunk : model_.chunks)
            for (const auto& [t, g] : chunk.weight_gradients)
                if (!(chunk.program.type(t).place.partial() & tensor_axes).empty()) partial_over_tensor_.insert(g.parameter);
    }

    // Units of this coordinate in the order in which the model names them.
    std::vector<std::pair<std::string, std::vector<int>>> units() const {
        std::set<int> here;
        for (const auto& [t, index] : step_.parameters) here.insert(index);
        std::vector<std::pair<std::string, std::vector<int>>> out;
        for (const int index : here) {
            const std::string& unit = model_.parameters[static_cast<std::size_t>(index)].unit;
            auto it = std::find_if(out.begin(), out.end(), [&](const auto& u) { return u.first == unit; });
            if (it == out.end()) it = out.insert(out.end(), {unit, {}});
            it->second.push_back(index);
        }
        return out;
    }

    void add_flat(const std::string& unit, std::vector<int> indices) {
        std::stable_partition(indices.begin(), indices.end(), [&](int i) { return partial_over_tensor_.contains(i); });
        Flat flat;
        flat.unit = unit;
        flat.tied = unit == "tied" && grid_.extent(Axis::pp) > 1;
        for (const int index : indices) {
            const std::int64_t count = p_.tables->count(model_.parameters[static_cast<std::size_t>(index)].type);
            flat.segments.push_back({index, flat.end, count});
            flat.end += count;
        }
        const std::int64_t grain = flat_block * grid_.size(zero_axes);
        flat.length = (flat.end + grain - 1) / grain * grain;
        for (std::size_t s = 0; s < flat.segments.size(); ++s) home_[flat.segments[s].parameter] = {static_cast<int>(p_.flats.size()), static_cast<int>(s)};
        p_.flats.push_back(flat);
    }

    TensorType flat_type(const Flat& flat, DType dtype, Book book) const {
        TensorType t({flat.length}, dtype, {}, book);
        t.place.varies = grid_.real(tensor_axes);
        t.place.holders = flat.tied ? Holders::ends : Holders::own;
        return t;
    }

    TensorId state(const std::string& name, const TensorType& t) {
        const BufferId b = p_.add_buffer(name, -1, t, true);
        return p_.declare(name, t, -1, b);
    }

    void declare_state(int u) {
        const Flat& flat = p_.flats[static_cast<std::size_t>(u)];
        Unit unit;
        unit.weights = state("W." + flat.unit, flat_type(flat, model_.activation, Book::weights));
        if (model_.activation != DType::f32) unit.master = state("P." + flat.unit, flat_type(flat, DType::f32, Book::optimizer));
        if (config_.optimizer.type == OptimizerType::adamw) {
            unit.m = state("M." + flat.unit, flat_type(flat, DType::f32, Book::optimizer));
            unit.v = state("V." + flat.unit, flat_type(flat, DType::f32, Book::optimizer));
        }
        if (train_) unit.gradient = p_.add_buffer("G." + flat.unit, -1, flat_type(flat, model_.weight_gradient, Book::gradients));
        split(u, unit.weights);
        units_.push_back(unit);
    }

    void split(int u, TensorId weights) {
        const Flat& flat = p_.flats[static_cast<std::size_t>(u)];
        Attributes a;
        a.unit = u;
        std::vector<TensorId> views;
        for (const FlatSegment& s : flat.segments) {
            const Parameter& q = model_.parameters[static_cast<std::size_t>(s.parameter)];
            a.types.push_back(q.type);
            views.push_back(p_.declare(q.name, p_.tables->type(q.type), -1, p_.tensors[static_cast<std::size_t>(weights)].buffer, s.offset));
            view_[s.parameter] = views.back();
        }
        Op op;
        op.kind = Kind::split;
        op.part = Part::step;
        op.unit = p_.tables->intern(flat.unit);
        op.attributes = p_.tables->intern(a);
        p_.append(op, std::vector<TensorId>{weights}, views);
    }

    // ---- the step's ops ----
    void find_last_contributions(const std::vector<Op>& ops) {
        for (std::size_t i = 0; i < ops.size(); ++i)
            for (const TensorId t : p_.outputs(ops[i]))
                if (const auto it = step_.weight_gradients.find(t); it != step_.weight_gradients.end())
                    units_[static_cast<std::size_t>(home_[it->second.parameter].first)].last = i;
    }

    void rewrite(const std::vector<Op>& ops, std::size_t i) {
        Op op = ops[i];
        for (std::int32_t k = op.first; k < op.first + op.inputs; ++k) {
            TensorId& t = p_.operands[static_cast<std::size_t>(k)];
            if (const auto it = step_.parameters.find(t); it != step_.parameters.end()) t = view_[it->second];
        }
        if (op.part != Part::backward_weight || !makes_weight_gradient(op)) { p_.ops.push_back(op); return; }
        const int u = contribute(op);
        if (units_[static_cast<std::size_t>(u)].last == i) reduce(u);
    }

    bool makes_weight_gradient(const Op& op) const { return step_.weight_gradients.contains(p_.outputs(op)[0]); }

    // The op writes its gradients into the unit's flat buffer, or adds them to what is there. Returns the unit.
    int contribute(const Op& op) {
        std::vector<TensorId> in(p_.inputs(op).begin(), p_.inputs(op).end());
        const std::vector<TensorId> made(p_.outputs(op).begin(), p_.outputs(op).end());
        Program::Options o;
        o.book = Book::gradients;
        o.writes_sum = true;
        int u = 0;
        for (const TensorId t : made) {
            const WeightGradient& g = step_.weight_gradients.at(t);
            const auto [unit, segment] = home_[g.parameter];
            u = unit;
            o.use = g.use;
            o.names.push_back("d." + model_.parameters[static_cast<std::size_t>(g.parameter)].name);
            const auto it = version_.find(g.parameter);
            o.adds = it != version_.end();
            if (o.adds) in.push_back(it->second);
            const Flat& flat = p_.flats[static_cast<std::size_t>(unit)];
            // The place of the gradient: a tensor of its type in the flat buffer; the op's own output is declared there too.
            o.storage.push_back(o.adds ? it->second
                                       : p_.declare("place", p_.type(t).in(Book::gradients), -1, units_[static_cast<std::size_t>(unit)].gradient,
                                                    flat.segments[static_cast<std::size_t>(segment)].offset));
        }
        const auto out = p_.add(op.kind, in, p_.attributes(op), {op.part, op.unit, op.microbatch, op.action}, o);
        for (std::size_t k = 0; k < made.size(); ++k) version_[step_.weight_gradients.at(made[k]).parameter] = out[k];
        return u;
    }

    // ---- reductions ----
    Where step_where(const std::string& unit) const { return {Part::step, p_.tables->intern(unit), -1, -1}; }

    void reduce(int u) {
        const Flat& flat = p_.flats[static_cast<std::size_t>(u)];
        const Where where = step_where(flat.unit);
        reduce_over_tensor(flat, where);
        Attributes a;
        a.unit = u;
        a.microbatches = microbatches_;
        a.tied = flat.tied;
        a.types = {p_.tables->intern(flat_type(flat, model_.weight_gradient, Book::gradients))};
        Program::Options o;
        o.book = Book::gradients;
        o.names = {"g." + flat.unit};
        o.storage = {p_.declare("place", p_.tables->type(a.types[0]), -1, units_[static_cast<std::size_t>(u)].gradient)};
        std::vector<TensorId> views;
        for (const FlatSegment& s : flat.segments) views.push_back(version_.at(s.parameter));
        const TensorId joined = p_.add(Kind::join, views, a, where, o)[0];
        Placement whole = p_.type(joined).place;
        whole.partial_sum = whole.partial_sum - state_axes_;
        units_[static_cast<std::size_t>(u)].reduced = in_place(joined, whole, where);
    }

    // One call for all views of like placement that are Partial over tp; they lie next to each other.
    void reduce_over_tensor(const Flat& flat, const Where& where) {
        std::map<std::pair<unsigned, TypeId>, std::vector<int>> groups;  // by axes and by the placement to reach
        for (const FlatSegment& s : flat.segments) {
            const TensorType& t = p_.type(version_.at(s.parameter));
            const AxisSet axes = t.place.partial_sum & tensor_axes;
            if (axes.empty()) continue;
            TensorType to({}, t.dtype, t.place, Book::gradients);
            to.place.partial_sum = t.place.partial_sum - axes;
            groups[{axes.bits, p_.tables->intern(to)}].push_back(s.parameter);
        }
        for (const auto& [key, members] : groups) {
            Attributes a;
            a.types = {key.second};
            Program::Options o;
            o.book = Book::gradients;
            std::vector<TensorId> in;
            for (const int index : members) {
                in.push_back(version_.at(index));
                o.names.push_back("d." + model_.parameters[static_cast<std::size_t>(index)].name);
            }
            o.storage = in;
            const auto out = p_.add(Kind::redistribute, in, a, where, o);
            for (std::size_t k = 0; k < members.size(); ++k) version_[members[k]] = out[k];
        }
    }

    TensorId in_place(TensorId x, const Placement& to, const Where& where) {
        Program::Options o;
        o.book = p_.type(x).book;
        o.storage = {x};
        o.names = {p_.name(x)};
        return p_.to(x, to, where, o);
    }

    // ---- the end of the step ----
    void finish_step() {
        const AxisSet pp = grid_.real(Axis::pp);
        for (std::size_t u = 0; u < units_.size(); ++u) {
            const Flat& flat = p_.flats[u];
            require(units_[u].reduced >= 0, "place: unit " + flat.unit + " has no gradient");
            if (!flat.tied) continue;
            Placement both = p_.type(units_[u].reduced).place;
            both.partial_sum = both.partial_sum - pp;
            both.holders = Holders::ends;
            units_[u].reduced = in_place(units_[u].reduced, both, step_where(flat.unit));
        }
        norm();
        for (std::size_t u = 0; u < units_.size(); ++u) update(static_cast<int>(u));
    }

    // The squared norm of the whole gradient. Each unit's squares are summed over the ranks of its coordinate, then every coordinate gets
    // every unit's sum, and all add them in the model's order: the same additions wherever a unit lives, and at every ZeRO stage, whose slices
    // these are. All units travel in one call.
    void norm() {
        const Where where = step_where("norm");
        Program::Options scalar;
        scalar.book = Book::buffers;
        std::vector<TensorId> squares;
        for (std::size_t u = 0; u < units_.size(); ++u) squares.push_back(unit_squares(static_cast<int>(u), where, scalar));
        Placement here;  // whole on the coordinate
        here.partial_sum = grid_.real(Axis::pp);
        squares = all_to(squares, here, where, scalar);
        if (grid_.extent(Axis::pp) > 1) squares = everywhere(squares, where, scalar);
        Attributes sum;
        sum.signature = ",->";
        TensorId total = squares[0];
        for (std::size_t u = 1; u < squares.size(); ++u) {
            if (u + 1 == squares.size()) scalar.names = {"norm2"};
            total = p_.add(Kind::add, {total, squares[u]}, sum, where, scalar)[0];
        }
        p_.norm = total;
    }

    // Sums slice by slice, once per distinct set of axes that cut parameters, as the types demand. Partial over all that tell ranks apart.
    TensorId unit_squares(int u, const Where& where, const Program::Options& scalar) {
        const Flat& flat = p_.flats[static_cast<std::size_t>(u)];
        TensorId slice = units_[static_cast<std::size_t>(u)].reduced;
        if (!zero_.empty()) {
            Placement cut = p_.type(slice).place;
            cut.cuts[0] = zero_;
            slice = sliced_view(slice, cut, where);
        }
        Placement partial;
        partial.partial_sum = grid_.real(tensor_axes | zero_axes | AxisSet(Axis::pp));
        std::set<unsigned> kinds;
        for (const FlatSegment& s : flat.segments) kinds.insert(cut_of(s.parameter).bits);
        TensorId total = -1;
        for (const unsigned kind : kinds) {
            Attributes a;
            a.unit = u;
            a.which = AxisSet::of_bits(kind);
            // What is whole over some axes is kept by the first rank along them.
            const TensorId q = p_.to(p_.add(Kind::sum_squares, {slice}, a, where, scalar)[0], partial, where, scalar);
            Attributes sum;
            sum.signature = ",->";
            total = total < 0 ? q : p_.add(Kind::add, {total, q}, sum, where, scalar)[0];
        }
        return total;
    }

    // Several scalars of one placement moved together.
    std::vector<TensorId> all_to(const std::vector<TensorId>& scalars, const Placement& to, const Where& where, const Program::Options& o) {
        if (p_.type(scalars[0]).place == to) return scalars;
        Attributes a;
        a.types = {p_.tables->intern(p_.type(scalars[0]).placed(to))};
        return p_.add(Kind::redistribute, scalars, a, where, o);
    }

    // The sums of all units of the model, on every pp coordinate: those of other coordinates are zero here.
    std::vector<TensorId> everywhere(const std::vector<TensorId>& here, const Where& where, const Program::Options& scalar) {
        std::vector<std::string> model_units;
        for (const Parameter& q : model_.parameters)
            if (std::find(model_units.begin(), model_units.end(), q.unit) == model_units.end()) model_units.push_back(q.unit);
        Attributes none;
        none.types = {p_.tables->intern(p_.type(here[0]))};
        std::vector<TensorId> all;
        for (const std::string& unit : model_units) {
            const auto it = std::find_if(p_.flats.begin(), p_.flats.end(), [&](const Flat& f) { return f.unit == unit; });
            all.push_back(it != p_.flats.end() ? here[static_cast<std::size_t>(it - p_.flats.begin())] : p_.add(Kind::zero, {}, none, where, scalar)[0]);
        }
        Placement to;
        to.holders = Holders::all;
        return all_to(all, to, where, scalar);
    }

    AxisSet cut_of(int parameter) const { return p_.tables->type(model_.parameters[static_cast<std::size_t>(parameter)].type).place.cut_axes(); }

    // This rank's slice of a flat buffer, where it stands.
    TensorId sliced_view(TensorId x, const Placement& cut, const Where& where) {
        Attributes a;
        a.types = {p_.tables->intern(p_.type(x).placed(cut))};
        const Tensor t = p_.tensors[static_cast<std::size_t>(x)];
        Program::Options o;
        o.book = p_.type(x).book;
        o.storage = {p_.declare("place", p_.tables->type(a.types[0]), -1, t.buffer, t.offset, cut.cuts[0].axes())};
        return p_.add(Kind::redistribute, {x}, a, where, o)[0];
    }

    void update(int u) {
        const Unit& unit = units_[static_cast<std::size_t>(u)];
        Attributes a;
        a.unit = u;
        a.microbatches = microbatches_;
        a.clip = config_.train.clip_grad;
        std::vector<TensorId> in = {unit.weights, unit.reduced, p_.norm}, state = {unit.weights};
        for (const TensorId t : {unit.master, unit.m, unit.v})
            if (t >= 0) { in.push_back(t); state.push_back(t); }
        Program::Options o;
        o.storage = state;
        for (const TensorId t : state) o.names.push_back(p_.name(t) + "'");
        const Kind kind = config_.optimizer.type == OptimizerType::adamw ? Kind::adamw : Kind::sgd;
        p_.add(kind, in, a, step_where(p_.flats[static_cast<std::size_t>(u)].unit), o);
    }

    void mean_loss() {
        if (step_.losses.empty()) return;
        const Where where = step_where("loss");
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
    const Model& model_;
    const Config& config_;
    const Grid grid_;
    const bool train_;
    const int microbatches_;
    Cuts zero_;
    AxisSet state_axes_;
    std::vector<Unit> units_;
    std::map<int, std::pair<int, int>> home_;       // parameter -> unit, segment
    std::map<int, TensorId> view_, version_;        // parameter -> its weights, its gradient so far
    std::set<int> partial_over_tensor_;
};

}  // namespace

Program place(Step step, const Model& model, const Config& config) { return Place(std::move(step), model, config).run(); }

}  // namespace quadrille

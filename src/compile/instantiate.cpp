#include "compile/instantiate.hpp"

#include <algorithm>
#include <map>

namespace quadrille {
namespace {

class Instantiate {
  public:
    Instantiate(const Model& model, const Order& order, int coordinate, int pp, int microbatches)
        : model_(model), order_(order), coordinate_(coordinate), pp_(pp), microbatches_(microbatches), step_(model.tables), out_(step_.program) {
        out_.coordinate = coordinate;
        out_.parameters = model.parameters;
        for (int c = coordinate; c < static_cast<int>(model.chunks.size()); c += pp) mine_.push_back(c);
        names_.resize(model.chunks.size() * static_cast<std::size_t>(microbatches));
    }

    Step run() {
        declare_parameters();
        load_inputs();
        if (last_here()) count_tokens();
        for (std::size_t i = 0; i < order_.size(); ++i) act(order_[i], static_cast<std::int32_t>(i));
        return std::move(step_);
    }

  private:
    struct Names { std::vector<TensorId> tensors; std::vector<BufferId> buffers; };  // of the template -> of the program

    const Chunk& chunk(int c) const { return model_.chunks[static_cast<std::size_t>(c)]; }
    int last() const { return static_cast<int>(model_.chunks.size()) - 1; }
    bool last_here() const { return mine_.back() == last(); }
    Names& names(int c, int m) { return names_[static_cast<std::size_t>(c) * static_cast<std::size_t>(microbatches_) + static_cast<std::size_t>(m)]; }

    void declare_parameters() {
        std::map<int, TensorId> declared;
        for (const int c : mine_) {
            std::map<TensorId, int> ordered(chunk(c).parameters.begin(), chunk(c).parameters.end());
            for (const auto& [t, index] : ordered) {
                const auto [it, fresh] = declared.try_emplace(index, -1);
                if (fresh) it->second = out_.declare(model_.parameters[static_cast<std::size_t>(index)].name, chunk(c).program.type(t));
                step_.parameters[it->second] = index;
                parameter_[{c, t}] = it->second;
            }
            first_use_[c] = uses_;
            for (const auto& [t, g] : chunk(c).weight_gradients) uses_[g.parameter] = std::max(uses_[g.parameter], first_use_[c][g.parameter] + g.use + 1);
        }
        for (const int c : mine_)
            for (int m = 0; m < microbatches_; ++m) {
                names(c, m).tensors.assign(chunk(c).program.tensors.size(), -1);
                names(c, m).buffers.assign(chunk(c).program.buffers.size(), -1);
                for (const auto& [t, index] : chunk(c).parameters) names(c, m).tensors[static_cast<std::size_t>(t)] = parameter_[{c, t}];
            }
    }

    void load_inputs() {
        const NameId data = out_.tables->intern("data");
        for (int m = 0; m < microbatches_; ++m) {
            std::map<std::pair<Input, TypeId>, TensorId> loaded;
            for (const int c : mine_) {
                std::map<TensorId, Input> ordered(chunk(c).inputs.begin(), chunk(c).inputs.end());
                for (const auto& [t, kind] : ordered) {
                    Attributes a;
                    a.input = kind;
                    a.types = {chunk(c).program.tensors[static_cast<std::size_t>(t)].type};
                    const auto [it, fresh] = loaded.try_emplace({kind, a.types[0]}, -1);
                    Program::Options o;
                    o.book = Book::buffers;
                    o.names = {std::string(name_of(kind))};
                    if (fresh) it->second = out_.add(Kind::load, {}, a, {Part::step, data, m, -1}, o)[0];
                    names(c, m).tensors[static_cast<std::size_t>(t)] = it->second;
                    if (kind == Input::mask) masks_.push_back(it->second);
                }
            }
        }
    }

    void count_tokens() {
        const Where where{Part::step, out_.tables->intern("head"), -1, -1};
        Program::Options o;
        o.book = Book::buffers;
        Attributes a;
        for (std::size_t i = 0; i < masks_.size(); ++i) a.signature += i ? ",bs" : "bs";
        a.signature += "->";
        const TensorId local = out_.add(Kind::count, masks_, a, where, o)[0];
        step_.tokens = out_.to(local, Placement{}, where, o);
        step_.inverse_tokens = out_.add(Kind::reciprocal, {step_.tokens}, {}, where, o)[0];
    }

    void act(const Action& action, std::int32_t index) {
        const int c = action.chunk, m = action.microbatch;
        const Chunk& t = chunk(c);
        const bool forward = action.phase == Phase::forward;
        const bool input_part = action.phase == Phase::backward || action.phase == Phase::backward_input;
        if (forward && c > 0) receive(t.input, c - 1, c, m, index, false);
        if (input_part && c < last()) receive(t.seed, c + 1, c, m, index, true);
        if (input_part && c == last()) names(c, m).tensors[static_cast<std::size_t>(t.seed)] = step_.inverse_tokens;
        for (const Op& op : t.program.ops)
            if (runs(op.part, action.phase)) copy(t, op, c, m, index);
        if (forward && c < last()) send(t.result, c + 1, c, m, index, false);
        if (forward && c == last()) step_.losses.push_back(names(c, m).tensors[static_cast<std::size_t>(t.result)]);
        if (input_part && c > 0) send(t.input_gradient, c - 1, c, m, index, true);
    }

    static bool runs(Part part, Phase phase) {
        switch (phase) {
            case Phase::forward: return part == Part::forward;
            case Phase::backward: return part == Part::backward_input || part == Part::backward_weight;
            case Phase::backward_input: return part == Part::backward_input;
            case Phase::backward_weight: return part == Part::backward_weight;
        }
        return false;
    }

    TensorId here(const Chunk& t, int c, int m, TensorId x) {
        Names& n = names(c, m);
        TensorId& y = n.tensors[static_cast<std::size_t>(x)];
        if (y >= 0) return y;
        Tensor copy = t.program.tensors[static_cast<std::size_t>(x)];
        BufferId& b = n.buffers[static_cast<std::size_t>(copy.buffer)];
        if (b < 0) {
            b = static_cast<BufferId>(out_.buffers.size());
            out_.buffers.push_back(t.program.buffers[static_cast<std::size_t>(copy.buffer)]);
            out_.buffers.back().microbatch = m;
        }
        copy.buffer = b;
        copy.microbatch = m;
        out_.tensors.push_back(copy);
        return y = static_cast<TensorId>(out_.tensors.size() - 1);
    }

    void copy(const Chunk& t, Op op, int c, int m, std::int32_t index) {
        op.microbatch = m;
        op.action = index;
        in_.clear();
        out_ids_.clear();
        for (const TensorId x : t.program.inputs(op)) in_.push_back(here(t, c, m, x));
        if (op.kind == Kind::token_loss) {  // a running sum, so that no microbatch's loss is lost or counted twice
            Program::Options o;
            o.book = Book::buffers;
            o.writes_sum = true;
            names(c, m).tensors[static_cast<std::size_t>(t.program.outputs(op)[0])] = out_.add(op.kind, in_, t.program.attributes(op), {op.part, op.unit, m, index}, o)[0];
            return;
        }
        for (const TensorId x : t.program.outputs(op)) {
            const TensorId y = here(t, c, m, x);
            out_ids_.push_back(y);
            if (op.part != Part::backward_weight) continue;
            if (const auto it = t.weight_gradients.find(x); it != t.weight_gradients.end())
                step_.weight_gradients[y] = {it->second.parameter, first_use_[c][it->second.parameter] + it->second.use};
        }
        out_.append(op, in_, out_ids_);
    }

    Where stage_where(int c, int m, std::int32_t index, bool gradient) {
        return {gradient ? Part::backward_input : Part::forward, out_.tables->intern(fmt::format("chunk{}", c)), m, index};
    }

    // `from` is the chunk that made what arrives, `c` the one that reads it as its template's tensor x.
    void receive(TensorId x, int from, int c, int m, std::int32_t index, bool gradient) {
        if (pp_ == 1) {  // made right here
            names(c, m).tensors[static_cast<std::size_t>(x)] = names(from, m).tensors[static_cast<std::size_t>(gradient ? chunk(from).input_gradient : chunk(from).result)];
            return;
        }
        Attributes a;
        a.types = {model_.residual};
        a.peer = from % pp_;
        a.chunk = from;
        a.gradient = gradient;
        Program::Options o;
        o.book = Book::buffers;
        o.names = {fmt::format("{}.{}", gradient ? "dx.of" : "x.of", from)};
        names(c, m).tensors[static_cast<std::size_t>(x)] = out_.add(Kind::recv, {}, a, stage_where(c, m, index, gradient), o)[0];
    }

    void send(TensorId x, int to, int c, int m, std::int32_t index, bool gradient) {
        if (pp_ == 1) return;
        Attributes a;
        a.peer = to % pp_;
        a.chunk = c;
        a.gradient = gradient;
        out_.add(Kind::send, {names(c, m).tensors[static_cast<std::size_t>(x)]}, a, stage_where(c, m, index, gradient));
    }

    const Model& model_;
    const Order& order_;
    const int coordinate_, pp_, microbatches_;
    Step step_;
    Program& out_;
    std::vector<int> mine_;
    std::map<std::pair<int, TensorId>, TensorId> parameter_;
    std::map<int, int> uses_;                       // parameter -> uses so far on this coordinate
    std::map<int, std::map<int, int>> first_use_;   // chunk -> parameter -> number of its first use
    std::vector<Names> names_;
    std::vector<TensorId> masks_, in_, out_ids_;
};

}  // namespace

std::vector<Step> instantiate(const Model& model, const std::vector<Order>& orders, int microbatches) {
    std::vector<Step> steps;
    const int pp = static_cast<int>(orders.size());
    for (int r = 0; r < pp; ++r) steps.push_back(Instantiate(model, orders[static_cast<std::size_t>(r)], r, pp, microbatches).run());
    return steps;
}

}  // namespace quadrille

#include "compile/instantiate.hpp"

#include <algorithm>
#include <map>

namespace quadrille {
namespace {

class Instantiate {
  public:
    Instantiate(const Model& model, const Order& order, int coordinate, int pp, int microbatches)
        : model_(model), order_(order), pp_(pp), microbatches_(microbatches), step_(model.tables), out_(step_.program) {
        out_.coordinate = coordinate;
        out_.parameters = model.parameters;
        for (int c = coordinate; c < static_cast<int>(model.chunks.size()); c += pp) mine_.push_back(c);
        copies_.resize(model.chunks.size() * static_cast<std::size_t>(microbatches));
    }

    Step run() {
        declare_parameters();
        load_inputs();
        if (last_here()) count_tokens();
        for (std::size_t i = 0; i < order_.size(); ++i) act(order_[i], static_cast<std::int32_t>(i));
        return std::move(step_);
    }

  private:
    // One microbatch of one chunk: what the template's tensors and buffers are in the program; -1: not there yet.
    struct Copies { std::vector<TensorId> tensors; std::vector<BufferId> buffers; };
    // An action of the order, on its way into the program.
    struct Place { int chunk, microbatch; std::int32_t action; };

    const Chunk& chunk(int c) const { return model_.chunks[static_cast<std::size_t>(c)]; }
    int last() const { return static_cast<int>(model_.chunks.size()) - 1; }
    bool last_here() const { return mine_.back() == last(); }
    bool goes_back() const { return std::any_of(order_.begin(), order_.end(), [](const Action& a) { return a.phase != Phase::forward; }); }
    Copies& copies(int c, int m) { return copies_[static_cast<std::size_t>(c * microbatches_ + m)]; }
    TensorId& copy_of(TensorId x, int c, int m) { return copies(c, m).tensors[static_cast<std::size_t>(x)]; }

    void declare_parameters() {
        std::map<int, TensorId> declared;
        for (const int c : mine_) {
            const std::map<TensorId, int> ordered(chunk(c).parameters.begin(), chunk(c).parameters.end());  // the same program every time
            for (const auto& [t, index] : ordered) {
                const auto [it, fresh] = declared.try_emplace(index, -1);
                if (fresh) it->second = out_.declare(model_.parameters[static_cast<std::size_t>(index)].name, chunk(c).program.type(t));
                step_.parameters[it->second] = index;
                parameter_[{c, t}] = it->second;
            }
            first_use_[c] = uses_;
            for (const auto& [t, g] : chunk(c).weight_gradients)
                uses_[g.parameter] = std::max(uses_[g.parameter], first_use_[c][g.parameter] + g.use + 1);
        }
        for (const int c : mine_)
            for (int m = 0; m < microbatches_; ++m) {
                copies(c, m).tensors.assign(chunk(c).program.tensors.size(), -1);
                copies(c, m).buffers.assign(chunk(c).program.buffers.size(), -1);
                for (const auto& [t, index] : chunk(c).parameters) copy_of(t, c, m) = parameter_[{c, t}];
            }
    }

    void load_inputs() {
        const NameId data = out_.tables->intern("data");
        for (int m = 0; m < microbatches_; ++m) {
            std::map<std::pair<Input, TypeId>, TensorId> loaded;
            for (const int c : mine_) {
                const std::map<TensorId, Input> ordered(chunk(c).inputs.begin(), chunk(c).inputs.end());
                for (const auto& [t, kind] : ordered) {
                    Attributes a;
                    a.input = kind;
                    a.types = {chunk(c).program.tensor(t).type};
                    const auto [it, fresh] = loaded.try_emplace({kind, a.types[0]}, -1);
                    Program::Options o;
                    o.book = Book::buffers;
                    o.names = {std::string(name_of(kind))};
                    if (fresh) it->second = out_.add(Kind::load, {}, a, {Part::step, data, m, -1}, o)[0];
                    copy_of(t, c, m) = it->second;
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
        step_.seed = step_.inverse_tokens;
        if (!model_.scales_loss || !goes_back()) return;
        Attributes scale;
        scale.loss_scale = 1;
        o.names = {"seed"};
        step_.seed = out_.add(Kind::scale_loss, {step_.inverse_tokens}, scale, where, o)[0];
    }

    void act(const Action& action, std::int32_t index) {
        const int c = action.chunk;
        const Place at{c, action.microbatch, index};
        const Chunk& t = chunk(c);
        const bool forward = action.phase == Phase::forward;
        const bool input_part = action.phase == Phase::backward || action.phase == Phase::backward_input;
        if (forward && c > 0) receive(t.input, c - 1, at, false);
        step_.training = step_.training || !forward;
        if (input_part && c < last() && chunk(c + 1).input_gradient >= 0) receive(t.seed, c + 1, at, true);
        if (input_part && c == last()) copy_of(t.seed, c, at.microbatch) = step_.seed;  // the loss is a mean over tokens
        for (const Op& op : t.program.ops)
            if (runs(op.part, action.phase)) copy(op, at);
        if (forward && c < last()) send(t.result, c + 1, at, false);
        if (forward && c == last()) step_.losses.push_back(copy_of(t.result, c, at.microbatch));
        if (input_part && t.input_gradient >= 0) send(t.input_gradient, c - 1, at, true);
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

    // The copy of tensor x, made with its buffer if it is not there yet.
    TensorId here(TensorId x, const Place& at) {
        TensorId& y = copy_of(x, at.chunk, at.microbatch);
        if (y >= 0) return y;
        const Program& from = chunk(at.chunk).program;
        Tensor tensor = from.tensor(x);
        BufferId& b = copies(at.chunk, at.microbatch).buffers[static_cast<std::size_t>(tensor.buffer)];
        if (b < 0) {
            b = static_cast<BufferId>(out_.buffers.size());
            out_.buffers.push_back(from.buffer(x));
            out_.buffers.back().microbatch = at.microbatch;
        }
        tensor.buffer = b;
        tensor.microbatch = at.microbatch;
        out_.tensors.push_back(tensor);
        return y = static_cast<TensorId>(out_.tensors.size() - 1);
    }

    void copy(Op op, const Place& at) {
        const Chunk& t = chunk(at.chunk);
        op.microbatch = at.microbatch;
        op.action = at.action;
        in_.clear();
        out_ids_.clear();
        for (const TensorId x : t.program.inputs(op)) in_.push_back(here(x, at));
        if (op.kind == Kind::token_loss) return copy_loss(op, at);
        for (const TensorId x : t.program.outputs(op)) {
            const TensorId y = here(x, at);
            out_ids_.push_back(y);
            if (op.part != Part::backward_weight) continue;
            if (const auto it = t.weight_gradients.find(x); it != t.weight_gradients.end())
                step_.weight_gradients[y] = {it->second.parameter, first_use_[at.chunk][it->second.parameter] + it->second.use};
        }
        out_.append(op, in_, out_ids_);
    }

    // A running sum, so that no microbatch's loss is lost or counted twice.
    void copy_loss(const Op& op, const Place& at) {
        const Program& from = chunk(at.chunk).program;
        Program::Options o;
        o.book = Book::buffers;
        o.writes_sum = true;
        const Where where{op.part, op.unit, at.microbatch, at.action};
        copy_of(from.outputs(op)[0], at.chunk, at.microbatch) = out_.add(op.kind, in_, from.attributes(op), where, o)[0];
    }

    Where stage_where(const Place& at, bool gradient) {
        const NameId unit = out_.tables->intern(fmt::format("chunk{}", at.chunk));
        return {gradient ? Part::backward_input : Part::forward, unit, at.microbatch, at.action};
    }

    // What chunk `from` made arrives as this chunk's tensor x.
    void receive(TensorId x, int from, const Place& at, bool gradient) {
        if (pp_ == 1) {  // made right here
            const TensorId made = gradient ? chunk(from).input_gradient : chunk(from).result;
            copy_of(x, at.chunk, at.microbatch) = copy_of(made, from, at.microbatch);
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
        copy_of(x, at.chunk, at.microbatch) = out_.add(Kind::recv, {}, a, stage_where(at, gradient), o)[0];
    }

    void send(TensorId x, int to, const Place& at, bool gradient) {
        if (pp_ == 1) return;
        Attributes a;
        a.peer = to % pp_;
        a.chunk = at.chunk;
        a.gradient = gradient;
        out_.add(Kind::send, {copy_of(x, at.chunk, at.microbatch)}, a, stage_where(at, gradient));
    }

    const Model& model_;
    const Order& order_;
    const int pp_, microbatches_;
    Step step_;
    Program& out_;
    std::vector<int> mine_;
    std::map<std::pair<int, TensorId>, TensorId> parameter_;
    std::map<int, int> uses_;                       // parameter -> uses so far on this coordinate
    std::map<int, std::map<int, int>> first_use_;   // chunk -> parameter -> number of its first use
    std::vector<Copies> copies_;                    // by chunk and microbatch
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

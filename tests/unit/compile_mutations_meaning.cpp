// Well typed, and another program: what placement types alone cannot see.
#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {
namespace {

bool draws(const Program& p, const Op& op) { return p.attributes(op).rate > 0; }
bool adds_gradients(const Program&, const Op& op) { return op.kind == Kind::add && op.part == Part::backward_input; }
bool adds_residual(const Program&, const Op& op) {
    return op.part == Part::forward && (op.kind == Kind::add || op.kind == Kind::residual_norm);
}
bool computes(const Program&, const Op& op) { return op.queue == Queue::compute && op.kind != Kind::redistribute; }

std::vector<bool> made_before(const Program& p, std::size_t i) {
    std::vector<bool> made(p.tensors.size(), false);
    for (std::size_t j = 0; j < i; ++j)
        for (const TensorId t : p.outputs(p.ops[j])) made[static_cast<std::size_t>(t)] = true;
    return made;
}

// An input is replaced by another tensor of its type that passes `test`.
bool replace_input(const Site& s, const std::function<bool(TensorId now, TensorId other)>& test) {
    const auto in = s.in();
    const auto made = made_before(s.p, s.i);
    const std::size_t start = s.random.below(in.size());
    for (std::size_t n = 0; n < in.size(); ++n) {
        const std::size_t k = (start + n) % in.size();
        std::vector<TensorId> others;
        for (std::size_t t = 0; t < made.size(); ++t) {
            const auto other = static_cast<TensorId>(t);
            if (made[t] && other != in[k] && s.tensor(other).type == s.tensor(in[k]).type && test(in[k], other))
                others.push_back(other);
        }
        if (others.empty()) continue;
        s.input(k) = s.random.one_of(others);
        return true;
    }
    return false;
}

bool like_typed_input(const Site& s) {
    return replace_input(s, [](TensorId, TensorId) { return true; });
}

bool other_layers_weight(const Site& s) {
    return replace_input(s, [&](TensorId now, TensorId other) {
        return s.p.type(now).book == Book::weights && s.tensor(now).offset != s.tensor(other).offset + 1 &&
               s.buffer(now).persistent && s.buffer(other).persistent;
    });
}

bool other_microbatchs_activation(const Site& s) {
    return replace_input(s, [&](TensorId now, TensorId other) {
        return s.tensor(now).name == s.tensor(other).name && s.tensor(now).microbatch != s.tensor(other).microbatch &&
               s.tensor(now).microbatch >= 0;
    });
}

bool forgotten_term(const Site& s) {
    if (s.random.below(2)) return bypass(s);
    const TensorId second = s.in()[1], sum = s.out()[0];
    if (s.tensor(second).type != s.tensor(sum).type) return bypass(s);
    erase_op(s.p, s.i);
    rewire(s.p, s.i, sum, second);
    return true;
}

// x + x for x + f(x), or the sum replaced by one of its terms.
bool forgotten_residual(const Site& s) {
    if (s.op().kind == Kind::residual_norm) {
        const std::size_t k = s.random.below(2);
        s.input(k) = s.in()[1 - k];
        return true;
    }
    return bypass(s);
}

bool other_microbatch_loaded(const Site& s) {
    s.op().microbatch += s.op().microbatch > 0 ? -1 : 1;
    return true;
}

bool other_input_loaded(const Site& s) {
    if (s.attributes().input != Input::tokens && s.attributes().input != Input::targets) return false;
    change_attributes(s, [](Attributes& a) { a.input = a.input == Input::tokens ? Input::targets : Input::tokens; });
    return true;
}

bool decay_flipped(const Site& s) {
    const Flat& flat = s.p.flats[static_cast<std::size_t>(s.attributes().unit)];
    Parameter& q = s.p.parameters[static_cast<std::size_t>(s.random.one_of(flat.segments).parameter)];
    q.decays = !q.decays;
    return true;
}

bool moments_swapped(const Site& s) {
    const auto in = s.in();
    if (s.op().kind != Kind::adamw) return false;
    std::swap(s.input(in.size() - 1), s.input(in.size() - 2));
    return true;
}

bool moments_swapped_throughout(const Site& s) {
    if (!moments_swapped(s)) return false;
    std::swap(s.input(s.op().inputs + s.op().outputs - 1u), s.input(s.op().inputs + s.op().outputs - 2u));
    return true;
}

bool other_units_gradient(const Site& s) {
    const auto made = made_before(s.p, s.i);
    std::vector<TensorId> others;
    for (std::size_t t = 0; t < made.size(); ++t)
        if (made[t] && s.tensor(static_cast<TensorId>(t)).type == s.tensor(s.in()[1]).type &&
            static_cast<TensorId>(t) != s.in()[1] && s.buffer(static_cast<TensorId>(t)).book == Book::gradients)
            others.push_back(static_cast<TensorId>(t));
    if (others.empty()) return false;
    s.input(1) = s.random.one_of(others);
    return true;
}

bool other_norm(const Site& s) {
    const auto made = made_before(s.p, s.i);
    std::vector<TensorId> others;
    for (std::size_t t = 0; t < made.size(); ++t)
        if (made[t] && s.p.type(static_cast<TensorId>(t)).dims == 0 && s.p.type(static_cast<TensorId>(t)).dtype == DType::f64 &&
            static_cast<TensorId>(t) != s.in()[2])
            others.push_back(static_cast<TensorId>(t));
    if (others.empty()) return false;
    s.input(2) = s.random.one_of(others);
    return true;
}

bool stream_changed(const Site& s) {
    change_attributes(s, [](Attributes& a) { ++a.stream; });
    return true;
}
bool rate_changed(const Site& s) {
    change_attributes(s, [](Attributes& a) { a.rate /= 2; });
    return true;
}

// A number or flag that the kind's formula has.
bool constant_changed(const Site& s) {
    const Attributes before = s.attributes();
    change_attributes(s, [&](Attributes& a) {
        switch (s.op().kind) {
            case Kind::norm:
            case Kind::residual_norm:
            case Kind::norm_dx:
            case Kind::norm_dw: a.eps *= 10; break;
            case Kind::rotary: s.random.below(2) ? void(a.inverse = !a.inverse) : void(a.base *= 2); break;
            case Kind::scale: a.factor *= 2; break;
            case Kind::logit_max:
            case Kind::logit_sums:
            case Kind::logit_sums_dx: --a.vocab; break;
            case Kind::adamw:
            case Kind::sgd: a.clip *= 2; break;
            default: break;
        }
    });
    return !(before == s.attributes());
}

// The loss, the norm or an update forgets the scale, or has another power of it.
bool scale_forgotten(const Site& s) {
    if (s.attributes().loss_scale == 0) return false;
    if (s.op().kind == Kind::scale_loss) return bypass(s);
    change_attributes(s, [](Attributes& a) { a.loss_scale = 0; });
    return true;
}
bool scale_changed(const Site& s) {
    if (s.attributes().loss_scale == 0) return false;
    change_attributes(s, [&](Attributes& a) { a.loss_scale = s.random.below(2) ? -a.loss_scale : 2 * a.loss_scale; });
    return true;
}
// Taken out of the gradient although nobody put it in: in programs that know no scale.
bool scale_invented(const Site& s) {
    if (s.attributes().loss_scale != 0) return false;
    change_attributes(s, [](Attributes& a) { a.loss_scale = -1; });
    return true;
}

bool mask_of_documents_forgotten(const Site& s) {
    const bool backward = s.op().kind == Kind::attention_dx;
    auto in = s.in();
    if (!s.attributes().documents) return false;
    in.erase(in.begin() + (backward ? 6 : 3));
    set_operands(s.p, s.op(), in, s.out());
    change_attributes(s, [](Attributes& a) { a.documents = false; });
    return true;
}

bool inputs_exchanged(const Site& s) {
    const auto in = s.in();
    for (std::size_t a = 0; a < in.size(); ++a)
        for (std::size_t b = a + 1; b < in.size(); ++b)
            if (in[a] != in[b] && s.tensor(in[a]).type == s.tensor(in[b]).type && s.random.below(2)) {
                std::swap(s.input(a), s.input(b));
                return true;
            }
    return false;
}

bool outputs_exchanged(const Site& s) {
    const auto out = s.out();
    for (std::size_t a = 0; a < out.size(); ++a)
        for (std::size_t b = a + 1; b < out.size(); ++b)
            if (s.tensor(out[a]).type == s.tensor(out[b]).type && s.random.below(2)) {
                std::swap(s.input(s.op().inputs + a), s.input(s.op().inputs + b));
                return true;
            }
    return false;
}

// A weight read as its transpose, where it is square and the types allow it.
bool transposed(const Site& s) {
    const Signature old = parse_signature(s.attributes().signature);
    if (old.in.size() < 2 || old.in[1].size() != 2) return false;
    Attributes a = s.attributes();
    a.signature = old.in[0] + "," + std::string(old.in[1].rbegin(), old.in[1].rend());
    for (std::size_t k = 2; k < old.in.size(); ++k) a.signature += "," + old.in[k];
    a.signature += "->" + old.out[0];
    s.op().attributes = s.p.tables->intern(a);
    return true;
}

bool bypassed_compute(const Site& s) {
    if (s.op().outputs != 1 || s.op().inputs == 0 || s.tensor(s.in()[0]).type != s.tensor(s.out()[0]).type) return false;
    return bypass(s);
}

}  // namespace

std::vector<MutationKind> meaning_mutations() {
    const Applies is_load = of_kind({Kind::load}), is_update = of_kind({Kind::adamw, Kind::sgd});
    const Applies is_attention = of_kind({Kind::attention, Kind::attention_dx}), is_matmul = of_kind({Kind::matmul, Kind::matmul_gelu});
    const Applies has_constant = of_kind({Kind::norm, Kind::residual_norm, Kind::norm_dx, Kind::norm_dw, Kind::rotary, Kind::scale, Kind::logit_max,
                                          Kind::logit_sums, Kind::logit_sums_dx, Kind::adamw});
    const Applies is_scaled = of_kind({Kind::scale_loss, Kind::adamw, Kind::sgd});
    return {
        {"another tensor of the same type", reads_something, like_typed_input},
        {"another layer's weight", reads_something, other_layers_weight},
        {"another microbatch's activation", reads_something, other_microbatchs_activation},
        {"gradient term forgotten", adds_gradients, forgotten_term},
        {"residual forgotten", adds_residual, forgotten_residual},
        {"another microbatch loaded", is_load, other_microbatch_loaded},
        {"targets for tokens", is_load, other_input_loaded},
        {"load missing", is_load, drop},
        {"load made twice", is_load, repeat},
        {"decay flipped", is_update, decay_flipped},
        {"moments swapped", is_update, moments_swapped},
        {"moments swapped, results too", is_update, moments_swapped_throughout},
        {"another unit's gradient", is_update, other_units_gradient},
        {"another scalar for the norm", is_update, other_norm},
        {"update missing", is_update, drop},
        {"updated twice", is_update, repeat},
        {"dropout stream changed", draws, stream_changed},
        {"dropout rate changed", draws, rate_changed},
        {"constant changed", has_constant, constant_changed},
        {"loss scale forgotten", is_scaled, scale_forgotten},
        {"another power of the loss scale", is_scaled, scale_changed},
        {"loss scale out of nothing", is_update, scale_invented},
        {"mask of documents forgotten", is_attention, mask_of_documents_forgotten},
        {"inputs exchanged", reads_something, inputs_exchanged},
        {"outputs exchanged", [](const Program&, const Op& op) { return op.outputs > 1; }, outputs_exchanged},
        {"weight transposed", is_matmul, transposed},
        {"op bypassed", computes, bypassed_compute},
        {"op dropped", computes, drop},
    };
}

}  // namespace quadrille::test

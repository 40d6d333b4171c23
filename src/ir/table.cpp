#include "ir/table.hpp"

#include "base/error.hpp"
#include "ir/rules.hpp"

#include <map>

namespace quadrille {
namespace {

constexpr std::uint8_t in(int i) { return static_cast<std::uint8_t>(1u << i); }

constexpr std::array<Row, kind_count> table = {{
    {.name = "matmul",        .dtypes = "aa->g", .linear = in(0) | in(1), .rule = matmul_rule},
    {.name = "matmul_gelu",   .dtypes = "aa->aa", .rule = matmul_rule},
    {.name = "add",           .dtypes = "n->n", .additive = true},
    {.name = "sum",           .dtypes = "a->g", .linear = in(0)},
    {.name = "embedding",     .signature = "bs,vh->bsh", .dtypes = "ia->a", .linear = in(1)},
    {.name = "embedding_dw",  .signature = "bs,bsh,vh->vh", .dtypes = "iaa->g", .linear = in(1), .rule = embedding_dw_rule},
    {.name = "norm",          .dtypes = "aaa->a", .whole = "h"},
    {.name = "residual_norm", .dtypes = "aaaa->aa", .whole = "h"},
    {.name = "norm_dx",       .signature = "bsh,h,bsh->bsh", .dtypes = "aaa->a", .linear = in(2), .whole = "h"},
    {.name = "norm_dw",       .dtypes = "aa->gg", .linear = in(1), .whole = "h"},
    {.name = "gelu",          .signature = "bsf->bsf", .dtypes = "a->a"},
    {.name = "gelu_dx",       .signature = "bsf,bsf->bsf", .dtypes = "aa->a", .linear = in(1)},
    {.name = "swiglu",        .signature = "bsf,bsf->bsf", .dtypes = "aa->a"},
    {.name = "swiglu_dx",     .signature = "bsf,bsf,bsf->bsf,bsf", .dtypes = "aaa->aa", .linear = in(2)},
    {.name = "dropout",       .signature = "bsh->bsh", .dtypes = "a->a", .linear = in(0)},
    {.name = "rotary",        .signature = "bsnd->bsnd", .dtypes = "a->a", .linear = in(0), .whole = "d"},
    {.name = "scale",         .signature = "bsr->bsr", .dtypes = "a->a", .linear = in(0)},
    {.name = "attention",     .rule = attention_rule},
    {.name = "attention_dx",  .rule = attention_rule},
    {.name = "cast",          .dtypes = "a->g", .linear = in(0)},
    {.name = "logit_max",     .signature = "bsv->bs", .dtypes = "a->s", .max = true},
    {.name = "logit_sums",    .signature = "bsv,bs,bs->cbs", .dtypes = "asi->s"},
    {.name = "logit_sums_dx", .signature = "bsv,bs,bs,cbs->bsv", .dtypes = "asis->a", .linear = in(3)},
    {.name = "token_loss",    .signature = "cbs,bs->", .dtypes = "sm->d", .whole = "c"},
    {.name = "token_loss_dx", .signature = "cbs,bs,->cbs", .dtypes = "smd->s", .linear = in(2), .whole = "c"},
    {.name = "count",         .dtypes = "m->d", .additive = true},
    {.name = "reciprocal",    .signature = "->", .dtypes = "d->d"},
    {.name = "scale_loss",    .signature = "->", .dtypes = "d->d", .linear = in(0)},
    {.name = "accumulate",    .rule = accumulate_rule},
    {.name = "mean_loss",     .rule = mean_loss_rule},
    {.name = "sum_squares",   .rule = sum_squares_rule},
    {.name = "adamw",         .rule = update_rule},
    {.name = "sgd",           .rule = update_rule},
    {.name = "compress",      .rule = compress_rule},
    {.name = "decompress",    .rule = decompress_rule},
    {.name = "retain",        .rule = retain_rule},
    {.name = "copy",          .rule = copy_rule},
    {.name = "redistribute",  .rule = redistribute_rule},
    {.name = "send",          .rule = send_rule},
    {.name = "recv",          .rule = declared_rule},
    {.name = "move",          .rule = move_rule},
    {.name = "load",          .rule = declared_rule},
    {.name = "zero",          .rule = declared_rule},
    {.name = "split",         .rule = split_rule},
    {.name = "join",          .rule = join_rule},
}};

struct Letter { std::int64_t size = 0; Cuts cuts; };

// What the operands say of each letter; throws where they disagree.
std::map<char, Letter> read_letters(const Signature& s, std::span<const TensorType> inputs) {
    std::map<char, Letter> letters;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const TensorType& t = inputs[i];
        if (static_cast<int>(s.in[i].size()) != t.dims) throw TypingError(fmt::format("'{}' does not fit {}", s.in[i], text(t)));
        for (std::size_t d = 0; d < s.in[i].size(); ++d) {
            const auto [it, fresh] = letters.try_emplace(s.in[i][d], Letter{t.shape[d], t.place.cuts[d]});
            if (fresh) continue;
            if (it->second.size != t.shape[d]) throw TypingError(fmt::format("'{}' is {} and {}", s.in[i][d], it->second.size, t.shape[d]));
            if (!(it->second.cuts == t.place.cuts[d])) throw TypingError(fmt::format("'{}' is cut in two ways: {}", s.in[i][d], text(t)));
        }
    }
    return letters;
}

// The axes over which exactly those operands are Partial that may be.
AxisSet carried_partial(const Row& r, std::span<const TensorType> inputs, AxisSet used) {
    AxisSet partial;
    for (const TensorType& t : inputs) {
        if (!t.place.partial_max.empty()) throw TypingError("a maximum is used before it is whole");
        partial |= t.place.partial_sum;
    }
    for (const Axis a : partial.list()) {
        std::size_t holders = 0, holder = 0;
        for (std::size_t i = 0; i < inputs.size(); ++i)
            if (inputs[i].place.partial_sum.has(a)) { ++holders; holder = i; }
        const bool allowed = r.additive ? holders == inputs.size() : holders == 1 && (r.linear >> holder & 1u);
        if (!allowed || used.has(a)) throw TypingError(fmt::format("Partial over {} used as if it were whole", name_of(a)));
    }
    return partial;
}

std::vector<TensorType> by_signature(const Row& r, const Attributes& a, std::span<const TensorType> inputs) {
    Signature s = parse_signature(a.signature.empty() ? r.signature : std::string_view(a.signature));
    if (s.in.size() != inputs.size()) throw TypingError(fmt::format("{} operands, the signature has {}", inputs.size(), s.in.size()));
    std::map<char, Letter> letters = read_letters(s, inputs);
    AxisSet used;
    for (const auto& [l, letter] : letters) {
        for (const Cut& c : letter.cuts) {
            if (used.has(c.axis)) throw TypingError(fmt::format("{} cuts two indices", name_of(c.axis)));
            used |= c.axis;
        }
        if (r.whole.find(l) != std::string_view::npos && !letter.cuts.empty()) throw TypingError(fmt::format("'{}' must be whole", l));
    }
    const AxisSet partial = carried_partial(r, inputs, used);
    std::vector<TensorType> out;
    for (const std::string& letters_out : s.out) {
        TensorType t;
        t.dims = static_cast<int>(letters_out.size());
        AxisSet gone = used;
        for (std::size_t d = 0; d < letters_out.size(); ++d) {
            const auto it = letters.find(letters_out[d]);
            if (it == letters.end()) {
                if (letters_out[d] != 'c') throw TypingError(fmt::format("'{}' is in no operand", letters_out[d]));
                t.shape[d] = 2;  // the two sums of the vocabulary-parallel loss
                continue;
            }
            t.shape[d] = it->second.size;
            t.place.cuts[d] = it->second.cuts;
            gone = gone - it->second.cuts.axes();
        }
        t.place.partial_sum = partial | (r.max ? AxisSet{} : gone);
        if (r.max) t.place.partial_max = gone;
        out.push_back(t);
    }
    return out;
}

void check_dtypes(const Row& r, const Attributes& a, std::span<const TensorType> inputs, std::vector<TensorType>& outputs) {
    if (r.dtypes.empty()) return;
    const std::size_t arrow = r.dtypes.find("->");
    DType activation = DType::f32;
    bool known = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const char want = r.dtypes[std::min(i, arrow - 1)];
        const DType have = inputs[i].dtype;
        bool ok = true;
        if (want == 'a' || want == 'n') {
            ok = known ? have == activation : have == DType::f32 || half_width(have) || (want == 'n' && have == DType::f64);
            activation = have;
            known = true;
        }
        if (want == 'i') ok = have == DType::i32;
        if (want == 'm') ok = have == DType::u8;
        if (want == 's') ok = have == DType::f32;
        if (want == 'd') ok = have == DType::f64;
        if (!ok) throw TypingError(fmt::format("operand {} is {}", i, name_of(have)));
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const char give = r.dtypes[std::min(arrow + 2 + i, r.dtypes.size() - 1)];
        outputs[i].dtype = give == 'a' || give == 'n' ? activation : give == 's' ? DType::f32 : give == 'd' ? DType::f64 : a.dtype;
    }
}

// Operands meet in one tier: the device's memory; in host memory only what updates and sums training state works, and what moves between ranks; a
// view may be taken anywhere.
void check_tiers(const Tables& tables, const Op& op, const Attributes& a, std::span<const TensorType> inputs) {
    if (op.kind == Kind::move || inputs.empty()) return;
    const Tier tier = inputs[0].tier;
    for (const TensorType& t : inputs)
        if (t.tier != tier) throw TypingError(fmt::format("operands in {} and in {} memory", name_of(tier), name_of(t.tier)));
    if (tier == Tier::device) return;
    const bool works = op.kind == Kind::adamw || op.kind == Kind::sgd || op.kind == Kind::retain || op.kind == Kind::accumulate ||
                       op.kind == Kind::sum_squares || op.kind == Kind::redistribute || op.kind == Kind::send;
    const bool views = op.kind == Kind::redistribute && !moves_data(change(inputs[0], tables.type(a.types.at(0)).place).pair);
    if (!views && !(works && tier == Tier::host)) throw TypingError(fmt::format("{} of a tensor in {} memory", row(op.kind).name, name_of(tier)));
}

}  // namespace

const Row& row(Kind k) { return table[static_cast<std::size_t>(k)]; }

std::vector<TensorType> signature_rule(Tables&, const Op& op, const Attributes& a, std::span<const TensorType> inputs) {
    const Row& r = row(op.kind);
    for (const TensorType& t : inputs)
        if (t.covers) throw TypingError("a running sum is used before it is complete");
    auto out = by_signature(r, a, inputs);
    check_dtypes(r, a, inputs, out);
    return out;
}

Signature parse_signature(std::string_view text) {
    Signature s;
    const std::size_t arrow = text.find("->");
    require(arrow != std::string_view::npos, "ir: a signature has no arrow");
    const auto split = [](std::string_view part, std::vector<std::string>& to) {
        for (std::size_t at = 0;;) {
            const std::size_t comma = part.find(',', at);
            to.emplace_back(part.substr(at, comma - at));
            if (comma == std::string_view::npos) return;
            at = comma + 1;
        }
    };
    split(text.substr(0, arrow), s.in);
    split(text.substr(arrow + 2), s.out);
    return s;
}

std::vector<TypeId> apply_rule(Tables& tables, const Op& op, std::span<const TypeId> inputs) {
    const Row& r = row(op.kind);
    const Attributes& a = tables.attributes(op.attributes);
    std::vector<TensorType> types;
    for (const TypeId t : inputs) types.push_back(tables.type(t));
    // A running sum: the last operands are the earlier versions of the outputs; the rule sees the others.
    std::vector<TensorType> earlier;
    if (op.adds) {
        const std::size_t n = std::min<std::size_t>(op.outputs, types.size());
        earlier.assign(types.end() - static_cast<std::ptrdiff_t>(n), types.end());
        types.resize(types.size() - n);
    }
    check_tiers(tables, op, a, types);
    std::vector<TensorType> out = r.rule ? r.rule(tables, op, a, types) : signature_rule(tables, op, a, types);
    std::vector<TypeId> ids;
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (op.writes_sum) {
            out[i].covers = tables.covers(Contribution{op.microbatch, op.use});
            if (op.adds) {
                if (!out[i].same_place(earlier.at(i))) throw TypingError(fmt::format("{} added to {}", text(out[i]), text(earlier[i])));
                out[i].covers = tables.joined(earlier[i].covers, out[i].covers);
            }
        }
        ids.push_back(tables.intern(out[i]));
    }
    return ids;
}

}  // namespace quadrille

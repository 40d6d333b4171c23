// Shape letters: b sequences of one microbatch over all data ranks, s sequence, h hidden, n query heads, g key-value heads, d head
// size, f ffn, v vocabulary (padded to a multiple of tp; padding is masked by global index), r rank of adapters.
#include "model/model.hpp"

#include "config/lora.hpp"
#include "ir/table.hpp"
#include "model/linear.hpp"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

namespace quadrille {
namespace {

// Streams of random numbers for dropout: sixteen per layer.
enum Stream : std::int64_t { after_embedding = 1, after_attention = 2, after_mlp = 3, in_attention = 4, streams_per_layer = 16 };

class Builder {
  public:
    using Indices = std::unordered_map<std::string, int>;  // of Model::parameters, by name

    Builder(const Config& config, Model& model, Chunk& chunk, Indices& indices)
        : c_(config.model), lora_(config.lora), sequence_(config.sequence), documents_(config.data.mask_across_documents), model_(model),
          chunk_(chunk), p_(chunk.program), indices_(indices) {
        const Grid& grid = p_.grid();
        b_ = Cuts::along(grid, data_axes);
        t_ = Cuts::along(grid, tensor_axes);
        const bool zigzag = sequence_.method == SequenceMethod::ring && sequence_.layout == SequenceLayout::zigzag;
        s_ = Cuts::along(grid, Axis::sp, zigzag ? Layout::zigzag : Layout::block);
        batch_ = config.train.micro_batch_size * config.grid.dp;
        const std::int64_t tp = grid.size(tensor_axes);
        vocab_ = (c_.vocab_size + tp - 1) / tp * tp;
        tokens_ = place({b_, s_});
        whole_ = place({b_, s_, {}});
        residual_ = place({b_, config.tensor.sequence_parallel ? s_.then(t_) : s_, {}});
    }

    void build(int first_layer, int layers, bool first, bool last) {
        TensorId x_bsh = first ? embed() : declare_input();
        for (int l = first_layer; l < first_layer + layers; ++l) x_bsh = block(x_bsh, l);
        chunk_.result = last ? head(x_bsh) : x_bsh;
    }

    TensorType residual() const { return TensorType({batch_, c_.seq_length, c_.hidden_size}, model_.activation, residual_); }

  private:
    static Placement place(const std::vector<Cuts>& cuts) {
        Placement p;
        std::size_t d = 0;
        for (const Cuts& c : cuts) p.cuts[d++] = c;
        return p;
    }

    // ---- pieces ----
    void enter(const std::string& unit) { unit_ = unit; where_ = {Part::forward, p_.tables->intern(unit), -1, -1}; }
    TensorId op(Kind kind, std::vector<TensorId> in, const Attributes& a = {}) { return p_.add(kind, std::move(in), a, where_)[0]; }

    TensorId declare_input() {
        chunk_.input = p_.declare("x", residual());
        return chunk_.input;
    }

    TensorId batch_input(Input kind, DType dtype, const Placement& at) {
        for (const auto& [t, k] : chunk_.inputs)
            if (k == kind) return t;
        const TensorId t = p_.declare(name_of(kind), TensorType({batch_, c_.seq_length}, dtype, at, Book::buffers));
        chunk_.inputs.emplace(t, kind);
        return t;
    }

    TensorId parameter(const Weight& w) {
        TensorType type;
        type.dtype = model_.activation;
        type.book = Book::weights;
        type.place = place(w.cuts);
        for (const std::int64_t n : w.shape) type.shape[static_cast<std::size_t>(type.dims++)] = n;
        const int index = index_of(w, type);
        const auto [at, fresh] = declared_.try_emplace(index, -1);
        if (!fresh) return at->second;
        at->second = p_.declare(w.name, type);
        chunk_.parameters.emplace(at->second, index);
        return at->second;
    }

    int index_of(const Weight& w, const TensorType& type) {
        const auto [at, fresh] = indices_.try_emplace(w.name, static_cast<int>(model_.parameters.size()));
        if (!fresh) return at->second;
        Parameter q;
        q.name = w.name;
        q.type = p_.tables->intern(type);
        q.shape = w.shape;
        if (w.true_rows) q.shape[0] = w.true_rows;
        q.unit = w.adapter ? unit_ + ".lora" : w.unit.empty() ? unit_ : w.unit;
        q.adapter = w.adapter;
        q.trained = w.adapter || !lora_.on();
        q.decays = w.adapter || w.init == Init::normal;  // matrices and embeddings; norms start at one, biases at zero
        q.init = w.init;
        q.init_std = w.deviation > 0 ? w.deviation : c_.init_std;
        if (w.fan_in > 0) q.init_bound = 1 / std::sqrt(static_cast<double>(w.fan_in));
        model_.parameters.push_back(q);
        return at->second;
    }

    TensorId vocabulary_table(const std::string& name, const std::string& unit) {
        return parameter({name, {vocab_, c_.hidden_size}, {t_, {}}, Init::normal, 0, c_.vocab_size, unit});
    }

    TensorId normed(TensorId x_bsh, const std::string& name) {
        Attributes a;
        a.rms = c_.normalization == Normalization::rmsnorm;
        a.eps = c_.norm_eps;
        a.signature = a.rms ? "bsh,h->bsh" : "bsh,h,h->bsh";
        std::vector<TensorId> in = {x_bsh, parameter({name + ".weight", {c_.hidden_size}, {{}}, Init::ones})};
        if (!a.rms) in.push_back(parameter({name + ".bias", {c_.hidden_size}, {{}}, Init::zeros}));
        return op(Kind::norm, in, a);
    }

    TensorId add(TensorId x, TensorId y, const char* signature) {
        Attributes a;
        a.signature = signature;
        return op(Kind::add, {x, y}, a);
    }

    // y = x wᵀ (+ adapter) (+ bias). The bias of a row-parallel product must count once, so it is added where the product is whole again:
    // at `home`.
    TensorId linear(TensorId x, const Linear& l) {
        Weight w = l.weight;
        w.name += ".weight";
        TensorId y = product(x, parameter(w), l.product);
        if (l.home) y = p_.to(adapted(y, x, l), *l.home, where_);
        if (c_.bias) y = add(y, parameter({l.weight.name + ".bias", l.bias_shape, {l.bias_cuts, {}}, Init::zeros}), l.bias);
        return l.home ? y : adapted(y, l.cut_x >= 0 ? l.cut_x : x, l);
    }

    // y + (alpha / rank) (x Aᵀ) Bᵀ for a target, else y (eq. 3 of Hu et al. 2021).
    //
    // Column parallel: B is cut and A whole. Row parallel: A is cut, u = x Aᵀ stays Partial, and y takes it in before its own move. So no
    // activation moves for them; the whole one's gradient is summed over tp once a step. Where the sequence is cut over tp between blocks, A
    // reads that piece: u is gathered, of rank r, and x is not gathered again for A's gradient.
    TensorId adapted(TensorId y, TensorId x, const Linear& l) {
        if (!is_target(lora_, l.weight.name)) return y;
        const Adapter pair = adapter_of(l, lora_.rank);
        TensorId u_bsr = product(x, parameter(pair.a), pair.into);
        Attributes by;
        by.factor = lora_.alpha / static_cast<double>(lora_.rank);
        if (by.factor != 1) u_bsr = op(Kind::scale, {u_bsr}, by);
        if (!l.home) u_bsr = p_.to(u_bsr, whole_, where_);
        return add(y, product(u_bsr, parameter(pair.b), pair.out_of), pair.sum.c_str());
    }

    TensorId product(TensorId x, TensorId w, std::string signature) {
        Attributes a;
        a.signature = std::move(signature);
        a.dtype = model_.activation;
        return op(Kind::matmul, {x, w}, a);
    }

    TensorId dropped(TensorId x_bsh, std::int64_t stream) {
        if (c_.hidden_dropout == 0) return x_bsh;
        Attributes a;
        a.rate = c_.hidden_dropout;
        a.stream = stream;
        return op(Kind::dropout, {x_bsh}, a);
    }

    // ---- one block ----
    TensorId attention(TensorId cut_bsh, const std::string& layer, std::int64_t stream) {
        const TensorId x_bsh = p_.to(cut_bsh, whole_, where_);  // Megatron sequence parallel: all-gather over tp
        const std::int64_t h = c_.hidden_size, n = c_.num_attention_heads, g = c_.num_key_value_heads, d = c_.head_dim;
        const Cuts kv = Cuts::along(p_.grid(), g % p_.grid().size(tensor_axes) == 0 ? tensor_axes : AxisSet(Axis::tp));  // else replicated over tq
        const auto projected = [&](const char* name, std::int64_t heads, const Cuts& cuts) {
            const Weight w = {layer + name, {heads, d, h}, {cuts, {}, {}}};
            return linear(x_bsh, {"bsh,ndh->bsnd", "bsnd,nd->bsnd", w, {heads, d}, cuts, nullptr, cut_bsh});
        };
        TensorId q_bsnd = projected(".q", n, t_), k_bsgd = projected(".k", g, kv), v_bsgd = projected(".v", g, kv);
        if (c_.position_embedding == PositionEmbedding::rope) {
            Attributes a;
            a.base = c_.rotary_base;
            q_bsnd = op(Kind::rotary, {q_bsnd}, a);
            k_bsgd = op(Kind::rotary, {k_bsgd}, a);
        }
        const Placement home = p_.type(q_bsnd).place;
        const bool heads = !s_.empty() && sequence_.method == SequenceMethod::ulysses;
        if (heads) {
            q_bsnd = to_heads(q_bsnd);
            k_bsgd = to_heads(k_bsgd);
            v_bsgd = to_heads(v_bsgd);
        }
        Attributes a;
        a.rate = c_.attention_dropout;
        a.stream = stream;
        a.unexpanded = !s_.empty() && !heads;  // keys cut by sp: a ring, turn by turn after expand
        a.documents = documents_;
        std::vector<TensorId> in = {q_bsnd, k_bsgd, v_bsgd};
        if (documents_) in.push_back(batch_input(Input::document_start, DType::i32, place({b_, heads ? Cuts{} : s_})));
        TensorId o_bsnd = op(Kind::attention, in, a);
        if (heads) o_bsnd = p_.to(o_bsnd, home, where_);
        const Weight out = {layer + ".o", {h, n, d}, {{}, t_, {}}, Init::normal, residual_deviation()};
        return linear(o_bsnd, {"bsnd,hnd->bsh", "bsh,h->bsh", out, {h}, {}, &residual_});
    }

    // Ulysses: the sequence whole, heads cut by sp inside tp. Too few key-value heads for that are whole over sp.
    TensorId to_heads(TensorId x_bsnd) {
        const TensorType& t = p_.type(x_bsnd);
        const Cuts finer = t.place.cuts[2].then(Cuts::along(p_.grid(), Axis::sp));
        const bool enough = t.place.cuts[2] == t_ && t.shape[2] % p_.grid().size(finer.axes()) == 0;
        return p_.to(x_bsnd, place({t.place.cuts[0], {}, enough ? finer : t.place.cuts[2], {}}), where_);
    }

    TensorId mlp(TensorId cut_bsh, const std::string& layer) {
        const TensorId x_bsh = p_.to(cut_bsh, whole_, where_);
        const std::int64_t h = c_.hidden_size, f = c_.ffn_hidden_size;
        TensorId y_bsf;
        const auto up = [&](const char* name) {
            const Weight w = {layer + name, {f, h}, {t_, {}}};
            return linear(x_bsh, {"bsh,fh->bsf", "bsf,f->bsf", w, {f}, t_, nullptr, cut_bsh});
        };
        if (c_.activation == Activation::swiglu) {
            const TensorId gate = up(".gate");
            y_bsf = op(Kind::swiglu, {gate, up(".up")});
        } else {
            y_bsf = op(Kind::gelu, {up(".up")});
        }
        const Weight down = {layer + ".down", {h, f}, {{}, t_}, Init::normal, residual_deviation()};
        return linear(y_bsf, {"bsf,hf->bsh", "bsh,h->bsh", down, {h}, {}, &residual_});
    }

    double residual_deviation() const { return c_.init_std / std::sqrt(2.0 * static_cast<double>(c_.num_layers)); }

    TensorId block(TensorId x_bsh, int l) {
        const std::string layer = fmt::format("layers.{}", l);
        const std::int64_t stream = streams_per_layer * (l + 1);
        enter(layer);
        chunk_.blocks.push_back(where_.unit);
        TensorId y = attention(normed(x_bsh, layer + ".attention_norm"), layer + ".attention", stream + in_attention);
        x_bsh = add(x_bsh, dropped(y, stream + after_attention), "bsh,bsh->bsh");
        y = dropped(mlp(normed(x_bsh, layer + ".mlp_norm"), layer + ".mlp"), stream + after_mlp);
        return add(x_bsh, y, "bsh,bsh->bsh");
    }

    // ---- the ends ----
    TensorId embed() {
        enter("embedding");
        const TensorId tokens_bs = batch_input(Input::tokens, DType::i32, tokens_);
        TensorId x_bsh = op(Kind::embedding, {tokens_bs, vocabulary_table("embedding.weight", c_.tie_word_embeddings ? "tied" : "embedding")});
        x_bsh = p_.to(x_bsh, residual_, where_);
        if (c_.position_embedding == PositionEmbedding::learned) {
            const TensorId positions_bs = batch_input(Input::positions, DType::i32, place({residual_.cuts[0], residual_.cuts[1]}));
            const TensorId table = parameter({"position_embedding.weight", {c_.seq_length, c_.hidden_size}, {{}, {}}});
            x_bsh = add(x_bsh, op(Kind::embedding, {positions_bs, table}), "bsh,bsh->bsh");
        }
        return dropped(x_bsh, after_embedding);
    }

    // Vocabulary-parallel cross-entropy: three small moves over tp, never a whole row of logits (Shoeybi et al. 2019, section 3).
    TensorId head(TensorId x_bsh) {
        enter("head");
        x_bsh = p_.to(normed(x_bsh, "final_norm"), whole_, where_);
        const TensorId table = c_.tie_word_embeddings ? vocabulary_table("embedding.weight", "tied") : vocabulary_table("head.weight", "head");
        const TensorId logits_bsv = product(x_bsh, table, "bsh,vh->bsv");
        Attributes loss;
        loss.vocab = c_.vocab_size;
        const TensorId max_bs = p_.to(op(Kind::logit_max, {logits_bsv}, loss), tokens_, where_);
        const TensorId targets_bs = batch_input(Input::targets, DType::i32, tokens_);
        TensorId sums_cbs = op(Kind::logit_sums, {logits_bsv, max_bs, targets_bs}, loss);
        sums_cbs = p_.to(sums_cbs, place({{}, b_, s_}), where_);
        return op(Kind::token_loss, {sums_cbs, batch_input(Input::mask, DType::u8, tokens_)});
    }

    const ModelConfig& c_;
    const LoraConfig& lora_;
    const SequenceConfig sequence_;
    const bool documents_;
    Model& model_;
    Chunk& chunk_;
    Program& p_;
    Indices& indices_;
    std::unordered_map<int, TensorId> declared_;  // in this chunk, by index
    Cuts b_, s_, t_;
    std::int64_t batch_ = 0, vocab_ = 0;
    Placement tokens_, whole_, residual_;
    std::string unit_;
    Where where_;
};

DType dtype_of(Precision p) {
    switch (p) {
        case Precision::fp32: break;
        case Precision::bf16: return DType::bf16;
        case Precision::fp16: return DType::f16;
    }
    return DType::f32;
}

}  // namespace

std::vector<std::string> trained_units(const Model& model) {
    std::vector<std::string> names;
    std::unordered_set<std::string> seen;
    for (const Parameter& q : model.parameters)
        if (q.trained && seen.insert(q.unit).second) names.push_back(q.unit);
    return names;
}

Model build_model(const Config& config, std::shared_ptr<Tables> tables) {
    Model model;
    model.tables = tables;
    model.activation = dtype_of(config.train.precision);
    model.weight_gradient = dtype_of(config.train.gradient_dtype);
    model.scales_loss = config.train.precision == Precision::fp16;
    const std::vector<int> layers = layers_per_chunk(config);
    Builder::Indices indices;
    int first_layer = 0;
    for (std::size_t c = 0; c < layers.size(); ++c) {
        model.chunks.emplace_back(tables);
        Builder builder(config, model, model.chunks.back(), indices);
        builder.build(first_layer, layers[c], c == 0, c + 1 == layers.size());
        model.residual = tables->intern(builder.residual());
        first_layer += layers[c];
    }
    return model;
}

}  // namespace quadrille

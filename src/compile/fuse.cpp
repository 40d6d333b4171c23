#include "compile/fuse.hpp"

#include "compile/rewrite.hpp"
#include "ir/table.hpp"

namespace quadrille {
namespace {

class Fuse {
  public:
    explicit Fuse(Chunk& chunk) : rewrite_(chunk.program), p_(chunk.program) {
        const auto& ops = rewrite_.old_ops();
        readers_.resize(p_.tensors.size());
        done_.assign(ops.size(), false);
        for (std::size_t i = 0; i < ops.size(); ++i)
            for (const TensorId t : p_.inputs(ops[i])) readers_[static_cast<std::size_t>(t)].push_back(i);
    }

    void run() {
        const auto& ops = rewrite_.old_ops();
        for (std::size_t i = 0; i < ops.size(); ++i) {
            if (done_[i]) continue;
            if (!may_join(ops[i]) || !(with_bias(i) || with_norm(i))) rewrite_.keep(ops[i]);
        }
    }

  private:
    // Clones join as their originals do, or they would round otherwise.
    static bool may_join(const Op& op) { return op.part == Part::forward || op.clone; }

    // The op of `kind`, and of the part of `maker`, that reads t first of all; the number of ops if none does.
    std::size_t reader(TensorId t, Kind kind, const Op& maker) const {
        const auto& ops = rewrite_.old_ops();
        for (const std::size_t i : readers_[static_cast<std::size_t>(t)])
            if (ops[i].kind == kind && ops[i].part == maker.part && ops[i].clone == maker.clone && !done_[i] && p_.inputs(ops[i])[0] == t) return i;
        return ops.size();
    }

    void put(Kind kind, const Op& like, Attributes a, std::vector<TensorId> in, std::vector<TensorId> out) {
        Op op = like;
        op.kind = kind;
        op.attributes = p_.tables->intern(a);
        for (TensorId& t : in) t = rewrite_.renamed(t);
        p_.append(op, in, out);
    }

    // matmul, add of fewer letters [, gelu]
    bool with_bias(std::size_t i) {
        const auto& ops = rewrite_.old_ops();
        const Op& product = ops[i];
        if (product.kind != Kind::matmul || product.inputs != 2) return false;
        const TensorId y = p_.outputs(product)[0];
        if (readers_[static_cast<std::size_t>(y)].size() != 1 || !p_.type(y).place.partial().empty()) return false;
        const std::size_t j = reader(y, Kind::add, product);
        if (j == ops.size()) return false;
        const Signature bias = parse_signature(rewrite_.attributes(ops[j]).signature);
        if (bias.in[1].size() == bias.in[0].size()) return false;  // a residual, no bias
        Attributes a = rewrite_.attributes(product);
        const Signature s = parse_signature(a.signature);
        a.signature = s.in[0] + "," + s.in[1] + "," + bias.in[1] + "->" + s.out[0];
        const std::vector<TensorId> in = {p_.inputs(product)[0], p_.inputs(product)[1], p_.inputs(ops[j])[1]};
        const TensorId z = p_.outputs(ops[j])[0];
        done_[j] = true;
        if (const std::size_t g = reader(z, Kind::gelu, product); g != ops.size()) {
            done_[g] = true;
            put(Kind::matmul_gelu, product, a, in, {z, p_.outputs(ops[g])[0]});
        } else {
            put(Kind::matmul, product, a, in, {z});
        }
        return true;
    }

    // add of two residuals, norm of the sum: work of the unit whose norm it is, since it reads that unit's weights
    bool with_norm(std::size_t i) {
        const auto& ops = rewrite_.old_ops();
        if (ops[i].kind != Kind::add || rewrite_.attributes(ops[i]).signature != "bsh,bsh->bsh") return false;
        const TensorId sum = p_.outputs(ops[i])[0];
        const std::size_t j = reader(sum, Kind::norm, ops[i]);
        if (j == ops.size() || !p_.type(sum).place.partial().empty()) return false;
        Attributes a = rewrite_.attributes(ops[j]);
        a.signature = a.rms ? "bsh,bsh,h->bsh,bsh" : "bsh,bsh,h,h->bsh,bsh";
        std::vector<TensorId> in(p_.inputs(ops[i]).begin(), p_.inputs(ops[i]).end());
        in.insert(in.end(), p_.inputs(ops[j]).begin() + 1, p_.inputs(ops[j]).end());
        done_[j] = true;
        put(Kind::residual_norm, ops[j], a, in, {sum, p_.outputs(ops[j])[0]});
        return true;
    }

    Rewrite rewrite_;
    Program& p_;
    std::vector<std::vector<std::size_t>> readers_;
    std::vector<bool> done_;
};

}  // namespace

void fuse(Chunk& chunk) { Fuse(chunk).run(); }

}  // namespace quadrille

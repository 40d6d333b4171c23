// A signature as one matrix product: letters in a and the output are rows M, in b and the output columns N, in a and b the
// contracted K. Each group must stand together and in one order wherever it occurs, so it acts as a single index.
#include "base/error.hpp"
#include "ir/table.hpp"
#include "runtime/bindings.hpp"

namespace quadrille {
namespace {

std::string shared(const std::string& a, const std::string& b) {
    std::string out;
    for (const char l : a)
        if (b.find(l) != std::string::npos) out += l;
    return out;
}

struct Side { std::string letters; std::size_t operand; };

const TensorType& operand(const Program& p, const Op& op, std::size_t i) { return p.type(p.inputs(op)[i]); }

std::int64_t size_of(const Program& p, const Op& op, const Side& s, const std::string& group) {
    const auto shape = local_shape(p.grid(), operand(p, op, s.operand));
    std::int64_t n = 1;
    for (const char l : group) n *= shape[s.letters.find(l)];
    return n;
}

// Whether an operand is stored [second, first] rather than [first, second].
bool transposed(const std::string& letters, const std::string& first, const std::string& second) {
    if (letters == first + second) return false;
    require(letters == second + first, "runtime: an operand's letters make no matrix");
    return true;
}

// The product without its addresses, and which operands it takes for a and b.
struct Product {
    Gemm gemm;
    std::size_t a, b;
};

Product product_of(const Program& p, const Op& op) {
    const Signature s = parse_signature(p.attributes(op).signature);
    Side a{s.in[0], 0}, b{s.in[1], 1};
    std::string m = shared(s.out[0], a.letters), n = shared(s.out[0], b.letters);
    if (s.out[0] == n + m && s.out[0] != m + n) {  // the other way round: c transposed is b's rows times a's
        std::swap(m, n);
        std::swap(a, b);
    }
    const std::string k = shared(a.letters, b.letters);
    if (s.out[0] != m + n || m.size() + n.size() != s.out[0].size() || !shared(k, s.out[0]).empty())
        require(false, fmt::format("runtime: '{}' is no matrix product", p.attributes(op).signature));
    require(s.in.size() == 2 || s.in[2] == n, "runtime: a bias has the letters of the product's columns");
    Gemm g;
    g.m = size_of(p, op, a, m);
    g.n = size_of(p, op, b, n);
    g.k = size_of(p, op, a, k);
    g.a_type = operand(p, op, a.operand).dtype;
    g.b_type = operand(p, op, b.operand).dtype;
    g.c_type = p.type(p.outputs(op)[0]).dtype;
    g.a_transposed = transposed(a.letters, m, k);
    g.b_transposed = transposed(b.letters, k, n);
    g.lda = g.a_transposed ? g.m : g.k;
    g.ldb = g.b_transposed ? g.k : g.n;
    g.ldc = g.n;
    return {g, a.operand, b.operand};
}

// A sum kept in 16 bits, or a 16-bit product of fp32 operands: the product is made in fp32 beside it, in the first bytes of the workspace, and
// rounded once, with the sum. How many bytes that takes.
std::int64_t bytes_beside(const Op& op, const Gemm& g) {
    if (g.c_type == DType::f32 || !(op.adds || g.a_type == DType::f32)) return 0;
    return (g.m * g.n * bytes_of(DType::f32) + 63) / 64 * 64;
}

}  // namespace

Kernel bind_matmul(const Call& c) {
    const Product product = product_of(c.program, c.op);
    Gemm g = product.gemm;
    g.a = c.in[product.a];
    g.b = c.in[product.b];
    g.c = c.out[0];
    if (c.operands() > 2) {
        g.bias = c.in[2];
        g.bias_type = c.in_tensor(2).dtype;
    }
    const std::int64_t beside = bytes_beside(c.op, g);
    if (c.workspace) g.workspace = c.workspace + beside;
    if (c.op.kind == Kind::matmul_gelu) return [g, y = c.out[1], &k = c.kernels](const StepInputs&) { k.gemm_gelu(g, y); };
    if (beside > 0) {
        require(c.workspace != nullptr, "runtime: a sum of products in 16 bits needs workspace");
        g.c = c.workspace;
        g.c_type = DType::f32;
        return [g, y = c.out[0], type = c.out_tensor(0).dtype, adds = c.op.adds, &k = c.kernels](const StepInputs&) {
            k.gemm(g);
            if (adds) k.accumulate(g.c, DType::f32, y, type, g.m * g.n);
            else k.cast(g.c, DType::f32, y, type, g.m * g.n);
        };
    }
    g.accumulate = c.op.adds;
    return [g, &k = c.kernels](const StepInputs&) { k.gemm(g); };
}

std::int64_t matmul_workspace(const Program& program, const Op& op, const Kernels& kernels) {
    Gemm g = product_of(program, op).gemm;
    const std::int64_t beside = bytes_beside(op, g);
    if (beside > 0) g.c_type = DType::f32;
    return beside + kernels.gemm_workspace(g);
}

}  // namespace quadrille

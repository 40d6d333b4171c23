// A signature as one matrix product: letters in a and the output are rows M, in b and the output columns N, in a and b the
// contracted K. Each group must stand together and in one order wherever it occurs, so it acts as a single index.
#include "base/error.hpp"
#include "cpu/elementwise.hpp"
#include "cpu/gemm.hpp"
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

std::int64_t size_of(const Call& c, const Side& s, const std::string& group) {
    const auto shape = c.in_shape(s.operand);
    std::int64_t n = 1;
    for (const char l : group) n *= shape[s.letters.find(l)];
    return n;
}

// Whether an operand is stored [second, first] rather than [first, second].
bool transposed(const Call& c, const std::string& letters, const std::string& first, const std::string& second) {
    if (letters == first + second) return false;
    if (letters != second + first) require(false, fmt::format("runtime: '{}' is no matrix product", c.attributes().signature));
    return true;
}

// A sum kept in bf16, or a bf16 product of fp32 operands: the product is made in fp32 beside it, and rounded once, with the sum.
bool beside(const Op& op, DType in, DType out) { return out != DType::f32 && (op.adds || in == DType::f32); }

Gemm product_of(const Call& c, const Signature& s) {
    Side a{s.in[0], 0}, b{s.in[1], 1};
    std::string m = shared(s.out[0], a.letters), n = shared(s.out[0], b.letters);
    if (s.out[0] == n + m && s.out[0] != m + n) {  // the other way round: c transposed is b's rows times a's
        std::swap(m, n);
        a = {s.in[1], 1};
        b = {s.in[0], 0};
    }
    const std::string k = shared(a.letters, b.letters);
    if (s.out[0] != m + n || m.size() + n.size() != s.out[0].size() || !shared(k, s.out[0]).empty())
        require(false, fmt::format("runtime: '{}' is no matrix product", c.attributes().signature));
    Gemm g;
    g.m = size_of(c, a, m);
    g.n = size_of(c, b, n);
    g.k = size_of(c, a, k);
    g.a = c.in[a.operand];
    g.b = c.in[b.operand];
    g.a_type = c.in_tensor(a.operand).dtype;
    g.b_type = c.in_tensor(b.operand).dtype;
    g.a_transposed = transposed(c, a.letters, m, k);
    g.b_transposed = transposed(c, b.letters, k, n);
    g.lda = g.a_transposed ? g.m : g.k;
    g.ldb = g.b_transposed ? g.k : g.n;
    g.ldc = g.n;
    g.c = c.out[0];
    g.c_type = c.out_tensor(0).dtype;
    if (s.in.size() > 2) {
        require(s.in[2] == n, "runtime: a bias has the letters of the product's columns");
        g.bias = c.in[2];
        g.bias_type = c.in_tensor(2).dtype;
    }
    return g;
}

}  // namespace

Kernel bind_matmul(const Call& c) {
    Gemm g = product_of(c, parse_signature(c.attributes().signature));
    if (c.op.kind == Kind::matmul_gelu) return [g, y = c.out[1]](const StepInputs&) { gemm_gelu(g, y); };
    if (beside(c.op, g.a_type, g.c_type)) {
        require(c.workspace != nullptr, "runtime: a sum of products in bf16 needs workspace");
        g.c = c.workspace;
        g.c_type = DType::f32;
        return [g, y = c.out[0], type = c.out_tensor(0).dtype, adds = c.op.adds](const StepInputs&) {
            gemm(g);
            if (adds) accumulate(g.c, DType::f32, y, type, g.m * g.n);
            else cast(g.c, DType::f32, y, type, g.m * g.n);
        };
    }
    g.accumulate = c.op.adds;
    return [g](const StepInputs&) { gemm(g); };
}

std::int64_t matmul_workspace(const Program& program, const Op& op) {
    const TensorId y = program.outputs(op)[0];
    if (!beside(op, program.type(program.inputs(op)[0]).dtype, program.type(y).dtype)) return 0;
    return local_count(program.grid(), program.type(y)) * bytes_of(DType::f32);
}

}  // namespace quadrille

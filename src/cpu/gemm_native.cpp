// Primitives are made once per shape and number of threads (oneDNN blocks for both) and kept for the life of the process; a call
// only wraps pointers. oneDNN's scratchpads, whose sizes it alone knows, belong to the calling thread and are kept. The one place
// where oneDNN 2 and 3 differ is `describe`.
#include "cpu/gemm_native.hpp"
#include <map>
#include <memory>
#include <mutex>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace quadrille {

namespace {

dnnl::memory::data_type onednn_type(DType t) {
    return t == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t cols, DType t, std::int64_t ld, bool transposed) {
    const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
    return {{rows, cols}, onednn_type(t), strides};
}

dnnl::matmul::primitive_desc describe(const Gemm& g, const dnnl::engine& engine) {
    const auto a = matrix(g.m, g.k, g.a_type, g.lda, g.a_transposed), b = matrix(g.k, g.n, g.b_type, g.ldb, g.b_transposed);
    const auto c = matrix(g.m, g.n, g.c_type, g.ldc, false);
    const auto bias = g.bias ? matrix(1, g.n, g.bias_type, g.n, false) : dnnl::memory::desc();
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (g.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0f);
        attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    return g.bias ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes) : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
    return {g.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

struct Product {
    Product(const Gemm& g, const dnnl::engine& engine) : description(describe(g, engine)), primitive(description) {
        scratch_bytes = static_cast<std::size_t>(description.scratchpad_desc().get_size());
    }
    dnnl::matmul::primitive_desc description;
    dnnl::matmul primitive;
    std::size_t scratch_bytes = 0;
};

// What a primitive depends on: everything in a Gemm but the pointers, and the number of threads.
auto key_of(const Gemm& g) {
    const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const int bias = g.bias ? 1 + static_cast<int>(g.bias_type) : 0;
    return std::tuple(g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.a_transposed, g.b_transposed, g.c_type, g.accumulate, bias, threads);
}

class Products {
  public:
    const Product& find(const Gemm& g) {
        const std::lock_guard lock(mutex_);
        auto& entry = products_[key_of(g)];
        if (!entry) entry = std::make_unique<Product>(g, engine_);
        return *entry;
    }
    const dnnl::engine& engine() const { return engine_; }

  private:
    dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
    std::mutex mutex_;
    std::map<decltype(key_of(Gemm{})), std::unique_ptr<Product>> products_;
};

}  // namespace

bool native_bf16() {
    __builtin_cpu_init();
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    const bool matrix_unit = (isa & amx) == amx;  // the values are sets of bits, not an order
    return matrix_unit || (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16"));
}

void gemm_native(const Gemm& g) {
    static Products products;  // a cache: what a call computes does not depend on it
    thread_local dnnl::stream stream(products.engine());
    thread_local std::vector<std::byte> scratch;
    const Product& p = products.find(g);
    if (scratch.size() < p.scratch_bytes) scratch.resize(p.scratch_bytes);
    const auto wrap = [&](const dnnl::memory::desc& d, const void* data) { return dnnl::memory(d, products.engine(), const_cast<void*>(data)); };
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, wrap(p.description.src_desc(), g.a)},
        {DNNL_ARG_WEIGHTS, wrap(p.description.weights_desc(), g.b)},
        {DNNL_ARG_DST, wrap(p.description.dst_desc(), g.c)},
        {DNNL_ARG_SCRATCHPAD, wrap(p.description.scratchpad_desc(), scratch.data())},
    };
    if (g.bias) arguments.emplace(DNNL_ARG_BIAS, wrap(p.description.bias_desc(), g.bias));
    p.primitive.execute(stream, arguments);
    stream.wait();
}

}  // namespace quadrille

// A GPU, where there is one: memory, a product by cuBLASLt, a kernel of our own and attention, with the libraries that a program links. Where there
// is none this is skipped, and that it links is what is tested.
#include "base/error.hpp"
#include "cuda/device.hpp"
#include "kernels/arithmetic.hpp"

#include <doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

using namespace quadrille;

namespace {

// Ends the test as skipped where there is no GPU.
CudaDevice& device() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        std::printf("skipped: no GPU: %s\n", status == cudaSuccess ? "CUDA counts none" : cudaGetErrorString(status));
        std::fflush(stdout);
        std::_Exit(77);
    }
    static CudaDevice one(0);
    return one;
}

// Device memory by pieces, each at a multiple of 64 bytes; those with values are written.
class Memory {
  public:
    explicit Memory(std::int64_t bytes) : left_(bytes), next_(device().reserve(bytes, "memory for a test")) {}
    std::byte* take(std::int64_t bytes) {
        const std::int64_t whole = (bytes + 63) / 64 * 64;
        REQUIRE(whole <= left_);
        left_ -= whole;
        return std::exchange(next_, next_ + whole);
    }
    template <class T>
    T* put(const std::vector<T>& x) {
        const auto bytes = static_cast<std::int64_t>(x.size() * sizeof(T));
        std::byte* const to = take(bytes);
        device().write(to, x.data(), bytes);
        return reinterpret_cast<T*>(to);
    }

  private:
    std::int64_t left_;
    std::byte* next_;
};

template <class T>
std::vector<float> values(const T* from, std::size_t count) {
    std::vector<T> x(count);
    device().read(x.data(), reinterpret_cast<const std::byte*>(from), static_cast<std::int64_t>(count * sizeof(T)));
    std::vector<float> out;
    for (const T& v : x) out.push_back(load(v));
    return out;
}

}  // namespace

TEST_CASE("a product, a map and attention on a GPU") {
    Memory memory(std::int64_t{64} << 20);
    Kernels& kernels = device().kernels();
    memory.take(64);  // nothing lies at a multiple of 256 by itself

    // Small whole numbers, whose sums are exact.
    constexpr std::int64_t m = 64, n = 96, k = 32;
    std::vector<float> a(m * k), b(k * n);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3.0f;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2.0f;
    std::vector<float> want(m * n);
    for (std::size_t i = 0; i < want.size(); ++i)
        for (std::size_t l = 0; l < k; ++l) want[i] += a[i / n * k + l] * b[l * n + i % n];
    Gemm g{.m = m, .n = n, .k = k};
    g.a = memory.put(a), g.lda = k, g.b = memory.put(b), g.ldb = n;
    auto* const c = reinterpret_cast<float*>(memory.take(m * n * 4));
    g.c = c, g.ldc = n, g.workspace = memory.take(kernels.gemm_workspace(g));
    kernels.gemm(g);
    CHECK(values(c, want.size()) == want);
    kernels.scale(c, 2.0, c, m * n, DType::f32);
    for (float& x : want) x *= 2.0f;
    CHECK(values(c, want.size()) == want);

    // Every value is 1.5: so is their mean, whatever the weights.
    constexpr std::int64_t s = 128, d = 64;
    std::vector<bf16> q(s * d), v(s * d, bf16(1.5f));
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = bf16(static_cast<float>(i % 11) * 0.125f);
    std::vector<std::int64_t> position(s);
    for (std::size_t i = 0; i < position.size(); ++i) position[i] = static_cast<std::int64_t>(i);
    for (const bool in_order : {true, false}) {  // cuDNN's, where it was built in, and our own
        const std::int64_t* const positions = device().list(position);
        Attention at{.shape = {1, s, s, 1, 1, d}, .type = DType::bf16, .q = memory.put(q), .k = memory.put(q), .v = memory.put(v),
                     .q_position = positions, .k_position = positions, .kv_head = device().list(std::vector<std::int64_t>{0}), .in_order = in_order,
                     .dropout = {}, .workspace = nullptr};
        at.workspace = memory.take(kernels.attention_workspace(at.shape, at.type, false));
        auto* const o = reinterpret_cast<bf16*>(memory.take(s * d * 2));
        auto* const lse = reinterpret_cast<float*>(memory.take(s * 4));
        kernels.attention(at, o, DType::bf16, lse, false);
        for (const float x : values(o, s * d)) CHECK(std::abs(x - 1.5f) < 0.02f);
    }
}

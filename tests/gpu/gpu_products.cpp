// Products by cuBLASLt: what of bias and gelu is left to it, that an algorithm is asked for once a shape, and addresses off any alignment. That the
// results are right is for tests/kernels/gemm.cpp.
#include "cuda/library_workspace.hpp"
#include "cuda/products.hpp"
#include "kernels/device.hpp"
#include "kernels/gemm_case.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

alignas(256) float place[1024];

Gemm product(DType type, DType c_type, std::int64_t ldc) {
    Gemm g{.m = 4, .n = 8, .k = 4};
    g.a = g.b = place, g.a_type = g.b_type = type, g.lda = 4, g.ldb = 8;
    g.c = place, g.c_type = c_type, g.ldc = ldc;
    return g;
}

void check_forms(const cuda::Epilogues& got, const std::vector<cuda::Epilogue>& want) {
    CHECK(std::vector<cuda::Epilogue>(got.form, got.form + got.size) == want);
}

}  // namespace

TEST_CASE("alignment of addresses, up to 256 bytes") {
    const auto at = [](std::uintptr_t address) { return cuda::alignment(reinterpret_cast<const void*>(address)); };
    CHECK(at(4096) == 256);
    CHECK(at(4096 + 128) == 128);
    CHECK(at(4096 + 16 + 2) == 2);
    CHECK(at(1) == 1);
}

TEST_CASE("what of bias and gelu a product takes") {
    const cuda::Epilogue plain{}, bias{.bias = true}, gelu{.gelu = true}, both{.bias = true, .gelu = true};
    Gemm g = product(DType::bf16, DType::bf16, 8);
    check_forms(cuda::epilogues(g, nullptr), {plain});
    check_forms(cuda::epilogues(g, place), {gelu, plain});
    g.bias = place, g.bias_type = DType::bf16;
    check_forms(cuda::epilogues(g, nullptr), {bias, plain});
    check_forms(cuda::epilogues(g, place), {both, bias, plain});
    g.bias = reinterpret_cast<const std::byte*>(place) + 2;
    check_forms(cuda::epilogues(g, place), {plain});
    g.bias = place, g.ldc = 9;
    check_forms(cuda::epilogues(g, place), {bias, plain});
    g = product(DType::bf16, DType::f32, 8);
    g.bias = place, g.bias_type = DType::bf16;
    check_forms(cuda::epilogues(g, nullptr), {plain});
    g = product(DType::f32, DType::f32, 8);
    check_forms(cuda::epilogues(g, place), {plain});
}

TEST_CASE("an algorithm is asked for once a shape, however often and wherever it is used") {
    CudaKernels kernels(nullptr);
    const Problem p({64, 96, 32, false, true, DType::bf16, DType::bf16, 0});
    Workspace workspace(kernels.gemm_workspace(p.gemm(place)));
    const auto run = [&](std::int64_t m, void* to) {
        Gemm g = p.gemm(to);
        g.m = m, g.workspace = workspace.data();
        kernels.gemm(g);
        finish_on_device();
        return emulator::choices_of_algorithms();
    };
    alignas(256) static bf16 here[64 * 96], there[64 * 96];
    const std::int64_t first = run(64, here);
    CHECK(run(64, there) == first);
    CHECK(run(32, here) == first + 1);
    CHECK(run(64, here) == first + 1);
    CHECK(run(32, here + 8) == first + 2);  // 16 bytes further
}

TEST_CASE("operands off any alignment") {
    for (const auto& [type, c_type] : combinations)
        for (const std::int64_t off : {1, 2, 7}) {
            const Case c{.m = 33, .n = 40, .k = 17, .b_transposed = true, .type = type, .c_type = c_type};
            const Problem p(c);
            const auto shifted = [&](const Stored& s) {
                Stored out = garbage(s.size() + off, s.t);
                std::copy(s.bytes.begin(), s.bytes.end(), out.bytes.begin() + off * bytes_of(s.t));
                return out;
            };
            const auto behind = [&](Stored& s) { return s.bytes.data() + off * bytes_of(s.t); };
            Stored a = shifted(p.a.stored), b = shifted(p.b.stored), bias = shifted(p.bias.stored), z = shifted(p.before.stored), y = z;
            Gemm g = p.gemm(behind(z));
            g.a = behind(a), g.b = behind(b), g.bias = behind(bias), g.bias_type = type;
            multiply_gelu(g, behind(y));
            const Stored got{c_type, {z.bytes.begin() + off * bytes_of(c_type), z.bytes.end()}};
            CHECK(error(got, p.reference(true, false), rounding(c_type), p.tolerance()) <= 1.0);
            CHECK(values(z)[0] == values(garbage(1, c_type))[0]);
        }
}

// C could not hold it exactly before the product is added: it would be rounded twice.
TEST_CASE("a bias wider than C is refused") {
    CudaKernels kernels(nullptr);
    Gemm g = product(DType::bf16, DType::bf16, 8);
    g.bias = place, g.bias_type = DType::f32;
    CHECK_THROWS_WITH_AS(kernels.gemm(g), doctest::Contains("a bias has the type of C, or C is f32"), std::logic_error);
}

// A workspace may lie at any multiple of 64 bytes; the emulated library, as the real one, takes multiples of 256 alone.
TEST_CASE("workspaces at each multiple of 64 bytes") {
    const Problem p({64, 96, 32, false, true, DType::bf16, DType::bf16, 0});
    alignas(256) static bf16 to[64 * 96];
    Gemm g = p.gemm(to);
    CudaKernels kernels(nullptr);
    const std::int64_t bytes = kernels.gemm_workspace(g);
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes) + 512);
    std::byte* const even = cuda::place_for_library(memory.data());
    for (const std::int64_t off : {0, 64, 128, 192}) {
        CHECK(cuda::place_for_library(even + off) == even + (off == 0 ? 0 : 256));
        g.workspace = even + off;
        kernels.gemm(g);
        finish_on_device();
    }
}

TEST_CASE("what cannot be is refused, with the shape") {
    CudaKernels kernels(nullptr);
    Gemm g = product(DType::bf16, DType::bf16, 8);
    CHECK_THROWS_WITH_AS(kernels.gemm(g), doctest::Contains("needs workspace"), std::logic_error);
    Workspace workspace(kernels.gemm_workspace(g));
    g.workspace = workspace.data();
    g.lda = 3;  // rows overlap
    CHECK_THROWS_WITH_AS(kernels.gemm(g),
                         "cuBLASLt: choosing an algorithm for the product of bf16 [4, 4] and [4, 8] to bf16 [4, 8]: CUBLAS_STATUS_INVALID_VALUE: as "
                         "emulated",
                         Error);
}

TEST_CASE("workspace is a function of the sizes and has an end") {
    const CudaKernels kernels(nullptr);
    Gemm g = product(DType::bf16, DType::bf16, 8);
    CHECK(kernels.gemm_workspace(g) == 32 * 4 * 4 * 8 + 255);  // the library's own begins at a multiple of 256
    g.m = g.n = 1 << 20;
    CHECK(kernels.gemm_workspace(g) == (32 << 20) + 255);
    g.k = 0;
    CHECK(kernels.gemm_workspace(g) == 0);
}

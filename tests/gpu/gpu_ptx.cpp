// The emulated twins of cuda/ptx.cuh: tensor-core fragments and matrix loads against plain products, and copies that are there only when awaited.
#include "cuda/ptx.cuh"

#include <doctest.h>
#include <random>
#include <vector>

using namespace quadrille;
using namespace quadrille::cuda;

namespace {

constexpr int rows = 16, inner = 16, columns = 8;

template <class T>
struct Operands {
    std::vector<T> a, b, b_rows;  // a[16,16], b[16,8], and b turned: [8,16], padded to 16 rows for loads of four matrices
    std::vector<float> c;         // [16,8]
};

template <class T>
Operands<T> operands() {
    std::mt19937 engine(7);
    std::normal_distribution<float> draw;
    Operands<T> o{std::vector<T>(rows * inner), std::vector<T>(inner * 16), std::vector<T>(16 * inner), std::vector<float>(rows * columns)};
    for (T& x : o.a) x = T(draw(engine));
    for (int k = 0; k < inner; ++k)
        for (int n = 0; n < columns; ++n)
            o.b[static_cast<std::size_t>(k * 16 + n)] = o.b_rows[static_cast<std::size_t>(n * inner + k)] = T(draw(engine));
    for (float& x : o.c) x = draw(engine);
    return o;
}

// c += a b by one warp: a and b through shared memory, b as rows of the inner dimension, or turned as rows of columns.
template <class T, bool turned>
__global__ void product(const T* a, const T* b, float* c) {
    T *const a_shared = dynamic_shared<T>(), *const b_shared = a_shared + 256;
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    for (int i = lane; i < 32; i += 32) copy_16(a_shared + 8 * i, a + 8 * i, true), copy_16(b_shared + 8 * i, b + 8 * i, true);
    close_copies();
    wait_for_copies<0>();
    __syncthreads();
    std::uint32_t a_lane[4], b_lane[4];
    load_matrices(a_lane, a_shared + lane % 16 * 16 + lane / 16 * 8);
    if (turned)
        load_matrices(b_lane, b_shared + (lane / 16 * 8 + lane % 8) * 16 + lane / 8 % 2 * 8);
    else
        load_matrices_transposed(b_lane, b_shared + lane % 16 * 16 + lane / 16 * 8);
    float c_lane[4];
    for (int i = 0; i < 4; ++i) c_lane[i] = c[(g + i / 2 * 8) * columns + 2 * t + i % 2];
    mma<T>(c_lane, a_lane, b_lane[0], b_lane[1]);
    for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * columns + 2 * t + i % 2] = c_lane[i];
}

template <class T>
void check_product() {
    const Operands<T> o = operands<T>();
    for (const bool turned : {false, true}) {
        std::vector<float> c = o.c;
        launch(turned ? product<T, true> : product<T, false>, Grid{dim3(1), dim3(32), 2 * 256 * sizeof(T)}, nullptr, o.a.data(),
               turned ? o.b_rows.data() : o.b.data(), c.data());
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t column = 0; column < columns; ++column) {
                double sum = static_cast<double>(o.c[row * columns + column]);
                for (std::size_t k = 0; k < inner; ++k)
                    sum += double{static_cast<float>(o.a[row * inner + k])} * double{static_cast<float>(o.b[k * 16 + column])};
                CHECK(c[row * columns + column] == static_cast<float>(sum));
            }
    }
}

// y[i] = whether the copy of thread i has come before and after it was awaited; of the second group of two.
__global__ void early(const std::uint32_t* x, int* before, int* between, int* after) {
    auto* const shared = dynamic_shared<std::uint32_t>();
    const int i = static_cast<int>(threadIdx.x);
    std::uint32_t *const first = shared + 8 * i, *const second = first + 4;
    copy_16(first, x, true);
    close_copies();
    copy_16(second, x, false);
    close_copies();
    before[i] = first[0] == x[0];
    wait_for_copies<1>();
    between[i] = first[3] == x[3] && second[0] != 0;
    wait_for_copies<0>();
    after[i] = second[0] == 0 && second[3] == 0;
}

}  // namespace

TEST_CASE("fragments of a product lie as documented") {
    check_product<bf16>();
    check_product<f16>();
}

TEST_CASE("a copy is there when it has been awaited, not before; what does not exist becomes zeros") {
    alignas(16) const std::uint32_t x[4] = {1, 2, 3, 4};
    std::vector<int> before(32), between(32), after(32);
    launch(early, Grid{dim3(1), dim3(32), 32 * 32}, nullptr, x, before.data(), between.data(), after.data());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(before == std::vector<int>(32, 0));
    CHECK(between == std::vector<int>(32, 1));
    CHECK(after == std::vector<int>(32, 1));
}

TEST_CASE("pairs are rounded to nearest even, the first in the low half") {
    CHECK(pair<bf16>(1.0f, -2.0f) == 0xC0003F80u);
    CHECK(pair<f16>(1.0f, 0x1.002p0f) == 0x3C003C00u);
    CHECK(pair<f16>(0x1.006p0f, 65520.0f) == 0x7C003C02u);
}

TEST_CASE("the fast power of two flushes what is subnormal") {
    CHECK(exp2_fast(3.0f) == 8.0f);
    CHECK(exp2_fast(-INFINITY) == 0.0f);
    CHECK(exp2_fast(-127.0f) == 0.0f);
    CHECK(std::isnan(exp2_fast(NAN)));
}

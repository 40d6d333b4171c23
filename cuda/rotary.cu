// Rotary positions. A block makes the cosines and sines of a few positions once, in shared memory, and turns all heads of its samples by them: each
// element is read and written once, 8 bytes in f32, 4 in 16 bits. The angles are made in double, in turns of the circle, where reducing them costs
// nothing: a product position · frequency in fp32 is wrong by radians at a million.
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/map_shape.hpp"
#include "cuda/pack.cuh"
#include "cuda/with_type.hpp"

#include <numbers>

namespace quadrille {

using namespace cuda;

namespace {

// The table of positions first .. first + positions of this block: cosines [positions, half], then sines.
__device__ void make_table(const Rotary& r, std::int64_t first, int positions, int half, float* cosine, float* sine) {
    for (int i = static_cast<int>(threadIdx.x); i < positions * half; i += map_threads) {
        const double position = static_cast<double>(r.position[first + i / half]);
        const double frequency = pow(r.base, -2.0 * (i % half) / static_cast<double>(r.d));
        double s, c;
        sincospi(position * frequency / std::numbers::pi, &s, &c);
        cosine[i] = static_cast<float>(c);
        sine[i] = static_cast<float>(r.inverse ? -s : s);
    }
}

// n pairs at a time; n divides d/2.
template <class T, int n>
__global__ void __launch_bounds__(map_threads) rotate(const Rotary r, const T* x, T* y, int positions_a_block) {
    const std::int64_t first = std::int64_t{blockIdx.x} * positions_a_block;
    const int positions = static_cast<int>(first + positions_a_block < r.s ? positions_a_block : r.s - first);
    const int half = static_cast<int>(r.d / 2), row = static_cast<int>(r.n) * (half / n);
    float* const cosine = dynamic_shared<float>();
    float* const sine = cosine + positions_a_block * half;
    make_table(r, first, positions, half, cosine, sine);
    __syncthreads();
    for (std::int64_t b = blockIdx.y; b < r.b; b += gridDim.y) {
        const std::int64_t sample = (b * r.s + first) * r.n * r.d;
        for (int item = static_cast<int>(threadIdx.x); item < positions * row; item += map_threads) {
            const int head = item / (half / n), pair = item % (half / n) * n, angle = item / row * half + pair;
            const std::int64_t at = sample + head * r.d + pair;
            auto u = load_values<n>(x + at), v = load_values<n>(x + at + half);
#pragma unroll
            for (int i = 0; i < n; ++i) {
                const float c = cosine[angle + i], s = sine[angle + i], a = u.x[i];
                u.x[i] = a * c - v.x[i] * s;
                v.x[i] = v.x[i] * c + a * s;
            }
            store_values(y + at, u);
            store_values(y + at + half, v);
        }
    }
}

}  // namespace

void CudaKernels::rotary(const Rotary& r, const void* x, void* y) {
    require(r.d % 2 == 0, "rotary: the head size must be even");
    require(r.n * r.d <= 0x3FFFFFFF, "rotary: a position's heads may have up to 2^30 elements together");
    if (r.b * r.s * r.n * r.d == 0) return;
    with_type(r.t, [&]<class T>(T) {
        const std::int64_t half = r.d / 2;
        const bool packed = half % pack_size<T> == 0 && packable(x, y);
        const RotaryShape shape = rotary_shape(r.b, r.s, r.n * half / (packed ? pack_size<T> : 1), half);
        const auto table_bytes = 2 * shape.positions * half * static_cast<std::int64_t>(sizeof(float));
        launch(packed ? rotate<T, pack_size<T>> : rotate<T, 1>,
               Grid{dim3(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y)), map_threads, table_bytes}, stream_, r,
               of<T>(x), of<T>(y), static_cast<int>(shape.positions));
    });
}

}  // namespace quadrille

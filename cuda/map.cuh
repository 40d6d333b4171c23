// y[i] = op(x0[i], x1[i], ...) over flat buffers, one or two results an element: what every elementwise kernel is. A thread takes two chunks at a
// time, all loads before the first store; a chunk is 16 bytes of the smallest element among operands and results, so that an SM full of threads has
// 64 KiB of each operand in flight. Every byte is moved once. Buffers that do not lie on multiples of 16 bytes go element by element, as the last
// elements do.
//
// Results may lie where operands do: each element is read and written by one thread, in that order.
#pragma once
#include "cuda/launch.cuh"
#include "cuda/map_shape.hpp"
#include "cuda/pack.cuh"

#include <algorithm>

namespace quadrille::cuda {

template <class D, int outs>
struct Results {
    D* y[outs];
};

template <class... T>
constexpr int chunk_size = pack_bytes / static_cast<int>(std::min({sizeof(T)...}));

// op(y, x...) sets y[outs] from one element of each operand.
template <class D, int outs, class Op, int n, class... More>
__device__ __forceinline__ void map_values(Op op, const Results<D, outs>& to, std::int64_t at, const Values<n>& x, const More&... more) {
    Values<n> y[outs];
#pragma unroll
    for (int i = 0; i < n; ++i) {
        float one[outs];
        op(one, x.x[i], more.x[i]...);
        for (int o = 0; o < outs; ++o) y[o].x[i] = one[o];
    }
    for (int o = 0; o < outs; ++o) store_values(to.y[o] + at, y[o]);
}
template <int n, class D, int outs, class Op, class... S>
__device__ __forceinline__ void map_chunk(Op op, const Results<D, outs>& to, std::int64_t at, const Chunk<S, n>&... x) {
    map_values(op, to, at, values_of(x)...);
}

template <class S, int n>
struct TwoChunks {
    Chunk<S, n> first, second;
};
template <int n, class S>
__device__ __forceinline__ TwoChunks<S, n> load_two(const S* x, std::int64_t first, std::int64_t second) {
    return {load_chunk<n>(x + first), load_chunk<n>(x + second)};
}
template <int n, class D, int outs, class Op, class... S>
__device__ __forceinline__ void map_two(Op op, const Results<D, outs>& to, std::int64_t first, std::int64_t second, const TwoChunks<S, n>&... x) {
    map_chunk<n>(op, to, first, x.first...);
    if (second != first) map_chunk<n>(op, to, second, x.second...);
}

template <class D, int outs, class Op, class... S>
__global__ void __launch_bounds__(map_threads) map_elements(const Op op, const std::int64_t count, const bool packed, const Results<D, outs> to,
                                                            const S*... x) {
    constexpr int n = chunk_size<D, S...>;
    const std::int64_t me = std::int64_t{blockIdx.x} * map_threads + threadIdx.x, all = std::int64_t{gridDim.x} * map_threads;
    const std::int64_t chunks = packed ? count / n : 0;
    for (std::int64_t c = me; c < chunks; c += 2 * all) {
        const std::int64_t other = c + all < chunks ? c + all : c;
        map_two<n>(op, to, c * n, other * n, load_two<n>(x, c * n, other * n)...);
    }
    for (std::int64_t i = chunks * n + me; i < count; i += all) map_chunk<1>(op, to, i, Chunk<S, 1>{x[i]}...);
}

template <class D, int outs, class Op, class... S>
void map(cudaStream_t stream, const Op& op, std::int64_t count, const Results<D, outs>& to, const S*... x) {
    const bool packed = packable(x...) && std::all_of(to.y, to.y + outs, [](const D* y) { return packable(y); });
    const unsigned blocks = map_blocks(count, packed ? chunk_size<D, S...> : 1);
    launch(map_elements<D, outs, Op, S...>, Grid{blocks, map_threads}, stream, op, count, packed, to, x...);
}

}  // namespace quadrille::cuda

// Attention of a CUDA device: cuDNN's where that covers the case (fused_attention.hpp), else our own. Of these here: what a call is made of, and two
// small kernels before the large ones (attention_forward.cu, attention_queries.cu, attention_keys.cu): bounds of positions, from which blocks tell
// what they need not compute, and the backward pass's statistics of queries.
#include "cuda/kernels.hpp"

#include "cuda/attention_block.cuh"

#include <cmath>

namespace quadrille::cuda {
namespace {

constexpr int small_threads = 128, small_warps = small_threads / 32;

__device__ __forceinline__ std::int64_t least(std::int64_t x) {
    for (int by = 16; by > 0; by /= 2) x = std::min(x, __shfl_xor_sync(0xFFFFFFFFu, x, by));
    return x;
}
__device__ __forceinline__ std::int64_t most(std::int64_t x) {
    for (int by = 16; by > 0; by /= 2) x = std::max(x, __shfl_xor_sync(0xFFFFFFFFu, x, by));
    return x;
}

// A warp to each strip, of the keys and then of each sequence's queries.
__global__ void __launch_bounds__(small_threads) bounds(const Attention a, KeyBounds* keys, QueryBounds* queries) {
    const std::int64_t key_strips = parts_of(a.shape.t, strip), query_strips = parts_of(a.shape.s, strip);
    const std::int64_t warp = std::int64_t{blockIdx.x} * small_warps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp < key_strips) {
        const std::int64_t position = a.k_position[std::min(warp * strip + lane, a.shape.t - 1)];
        const KeyBounds found{least(position), most(position)};
        if (lane == 0) keys[warp] = found;
    } else if (warp < key_strips + a.shape.b * query_strips) {
        const std::int64_t at = warp - key_strips, b = at / query_strips;
        const Sight sight = sight_of(a, static_cast<int>(b), static_cast<int>(std::min(at % query_strips * strip + lane, a.shape.s - 1)));
        const QueryBounds found{least(sight.oldest), most(sight.oldest), least(sight.newest), most(sight.newest)};
        if (lane == 0) queries[at] = found;
    }
}

constexpr int row_lanes = 8;  // of a row of o and d_o: a pass of packs is 128 bytes

template <class T>
__device__ __forceinline__ float dot(const T* x, const T* y, int count, float sum) {
    for (int i = 0; i < count; ++i) sum = fmaf(load(x[i]), load(y[i]), sum);
    return sum;
}

// Eight lanes to each query and head, in memory's order; queries that only fill up the last tile see no key. Reads o and d_o once.
template <class T>
__global__ void __launch_bounds__(small_threads) statistics(const AttentionCall call, const void* o, const void* d_o, const float* lse) {
    const auto [batch, s, t, heads, kv_heads, d] = call.a.shape;
    const std::int64_t padded = padded_queries(s), row = (std::int64_t{blockIdx.x} * small_threads + threadIdx.x) / row_lanes;
    const std::int64_t n = row % heads, query = row / heads % padded, b = row / heads / padded, lane = threadIdx.x % row_lanes;
    const bool exists = b < batch && query < s;
    const std::int64_t at = exists ? row_at(s, heads, d, b, query, n) : 0, end = exists ? d : 0;
    const T *const x = static_cast<const T*>(o) + at, *const y = static_cast<const T*>(d_o) + at;
    float delta = 0;
    for (std::int64_t i = lane * pack_size<T>; i < end; i += row_lanes * pack_size<T>) {
        if (call.packed) {
            const Pack<T> pack_x = load_pack(x + i), pack_y = load_pack(y + i);
            delta = dot(pack_x.x, pack_y.x, pack_size<T>, delta);
        } else {  // the same order: where tensors lie changes no bit
            delta = dot(x + i, y + i, static_cast<int>(std::min<std::int64_t>(pack_size<T>, end - i)), delta);
        }
    }
    for (int by = row_lanes / 2; by > 0; by /= 2) delta += __shfl_xor_sync(0xFFFFFFFFu, delta, by);
    if (lane != 0 || b >= batch) return;
    QueryStatistics found;
    const float natural = exists ? lse[row_at(s, heads, 1, b, query, n)] : minus_infinity;
    if (natural != minus_infinity) found = {natural * log2_e, delta};
    call.statistics[row_at(heads, padded, 1, b, n, query)] = found;
}

__global__ void __launch_bounds__(small_threads) turn(const float* from, float* to, std::int64_t count, std::int64_t rows, std::int64_t columns) {
    const std::int64_t step = std::int64_t{gridDim.x} * small_threads;
    for (std::int64_t at = std::int64_t{blockIdx.x} * small_threads + threadIdx.x; at < count * rows * columns; at += step) {
        const std::int64_t r = at % rows, c = at / rows % columns, i = at / rows / columns;
        to[at] = from[(i * rows + r) * columns + c];
    }
}

// `more`: the tensors of the call besides q, k and v.
AttentionCall call_of(const Attention& a, bool backward, std::initializer_list<const void*> more) {
    const AttentionShape& shape = a.shape;
    if (shape.d > most_head_size)
        throw Error(Exit::refused, fmt::format("attention on a CUDA device: heads have {} channels, at most {} are possible", shape.d, most_head_size));
    require(std::max(shape.s, shape.t) < std::int64_t{1} << 31, "attention: a call has at most 2^31 - 1 queries and keys");
    const Workspace w = workspace_of(shape, backward);
    auto* const memory = static_cast<std::byte*>(a.workspace);
    const bool packed = packable(shape.d * bytes_of(a.type)) && packable(a.q, a.k, a.v) &&
                        std::all_of(more.begin(), more.end(), [](const void* p) { return packable(p); });
    return {a,
            reinterpret_cast<KeyBounds*>(memory + w.keys),
            reinterpret_cast<QueryBounds*>(memory + w.queries),
            reinterpret_cast<QueryStatistics*>(memory + w.statistics),
            packed,
            1.0f / std::sqrt(static_cast<float>(shape.d))};
}

void find_bounds(const AttentionCall& call, cudaStream_t stream) {
    const AttentionShape& shape = call.a.shape;
    const std::int64_t strips = parts_of(shape.t, strip) + shape.b * parts_of(shape.s, strip);
    launch(bounds, Grid{dim3(attention_blocks(1, strips, small_warps)), dim3(small_threads)}, stream, call.a, const_cast<KeyBounds*>(call.keys),
           const_cast<QueryBounds*>(call.queries));
}

void find_statistics(const AttentionCall& call, const AttentionGradients& grads, cudaStream_t stream) {
    const AttentionShape& shape = call.a.shape;
    const Grid grid{dim3(attention_blocks(1, shape.b * padded_queries(shape.s) * shape.n, small_threads / row_lanes)), dim3(small_threads)};
    switch (call.a.type) {
        case DType::f32: return launch(statistics<float>, grid, stream, call, grads.o, grads.d_o, grads.lse);
        case DType::bf16: return launch(statistics<bf16>, grid, stream, call, grads.o, grads.d_o, grads.lse);
        case DType::f16: return launch(statistics<f16>, grid, stream, call, grads.o, grads.d_o, grads.lse);
        default: require(false, "attention is of f32, bf16 or f16");
    }
}

}  // namespace

void turn_statistics(const float* from, float* to, std::int64_t count, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
    const std::int64_t blocks = std::min(parts_of(count * rows * columns, small_threads), std::int64_t{1} << 20);
    launch(turn, Grid{dim3(static_cast<unsigned>(blocks)), dim3(small_threads)}, stream, from, to, count, rows, columns);
}

}  // namespace quadrille::cuda

namespace quadrille {

void CudaKernels::attention(const Attention& a, void* o, DType o_type, float* lse, bool merge) {
    require(!merge || o_type == DType::f32, "attention merges into an f32 output only");
    require(o_type == DType::f32 || o_type == a.type, "attention's output has the type of q or is f32");
    const cuda::AttentionCall call = cuda::call_of(a, false, {o});
    if (call.packed && cuda::fused_form(a, o_type, merge) && fused_.covers(a.shape, a.type, false)) return fused_.forward(a, o, lse, stream_);
    cuda::find_bounds(call, stream_);
    cuda::attention_forward(call, o, o_type, lse, merge, stream_);
}

void CudaKernels::attention_dx(const Attention& a, const void* o, const float* lse, const void* d_o, void* dq, void* dk, void* dv, DType grad_type,
                               bool accumulate) {
    require(!accumulate || grad_type == DType::f32, "attention accumulates into f32 gradients only");
    require(grad_type == DType::f32 || grad_type == a.type, "attention's gradients have the type of q or are f32");
    const cuda::AttentionCall call = cuda::call_of(a, true, {o, d_o, dq, dk, dv});
    if (call.packed && cuda::fused_form(a, grad_type, accumulate) && fused_.covers(a.shape, a.type, true))
        return fused_.backward(a, o, lse, d_o, dq, dk, dv, stream_);
    const cuda::AttentionGradients grads{o, d_o, lse, dq, dk, dv, grad_type == DType::f32, accumulate};
    cuda::find_bounds(call, stream_);
    cuda::find_statistics(call, grads, stream_);
    cuda::attention_key_gradients(call, grads, stream_);
    cuda::attention_query_gradients(call, grads, stream_);
}

std::int64_t CudaKernels::attention_workspace(const AttentionShape& shape, DType type, bool backward) const {
    return std::max(cuda::workspace_of(shape, backward).bytes, fused_.workspace(shape, type, backward));
}

}  // namespace quadrille

// topk packets. Of a block of 65536 elements the k-th largest magnitude is found digit by digit (11, 10 and 10 bits, counted in shared memory); then
// the elements above it are written in their order, and of those equal to it the first. An entry may begin at any even address, so an f32 is read and
// written as two halves.
#include "cuda/packets.cuh"
#include "cuda/reduce.cuh"

namespace quadrille::cuda {
namespace {

constexpr unsigned choose_threads = 1024, add_threads = 256;
constexpr int most_digits = 2048;

__device__ __forceinline__ void put(std::byte* to, float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    reinterpret_cast<std::uint16_t*>(to)[0] = static_cast<std::uint16_t>(bits);
    reinterpret_cast<std::uint16_t*>(to)[1] = static_cast<std::uint16_t>(bits >> 16);
}
__device__ __forceinline__ float value_at(const std::byte* from) {
    const auto* const halves = reinterpret_cast<const std::uint16_t*>(from);
    return std::bit_cast<float>(halves[0] | static_cast<std::uint32_t>(halves[1]) << 16);
}

struct Threshold {
    std::uint32_t key;  // magnitude of the k-th largest
    int ties;           // how many of just that are among the k largest
};

// The digit, from the top, with which so many are found, and how many of it those are. By the first warp, each lane a share of the digits.
__device__ __forceinline__ void choose_digit(const int (&found)[most_digits], int digits, int wanted, int& digit, int& ties) {
    const int lane = static_cast<int>(threadIdx.x), share = digits / warp_threads;
    int sum = 0;
    for (int d = 0; d < share; ++d) sum += found[digits - 1 - lane * share - d];
    int through = sum;  // of this lane and those above
    for (int distance = 1; distance < warp_threads; distance *= 2) {
        const int above = __shfl_sync(all_lanes, through, lane >= distance ? lane - distance : lane);
        if (lane >= distance) through += above;
    }
    int before = through - sum;
    if (before >= wanted || through < wanted) return;
    int d = digits - 1 - lane * share;
    for (; before + found[d] < wanted; --d) before += found[d];
    digit = d;
    ties = wanted - before;
}

template <class Key>
__device__ __forceinline__ Threshold kth_largest(std::int64_t n, int k, Key key) {
    __shared__ int found[most_digits];
    __shared__ int digit, ties;
    Threshold t{0, k};
    int above = 31;  // bits that are known
    for (int shift = 20; shift >= 0; shift -= 10) {
        const int digits = 1 << (above - shift);
        for (int d = static_cast<int>(threadIdx.x); d < digits; d += choose_threads) found[d] = 0;
        __syncthreads();
        for (std::int64_t i = threadIdx.x; i < n; i += choose_threads) {
            const std::uint32_t x = key(i);
            if (above == 31 || x >> above == t.key >> above) atomicAdd(&found[x >> shift & (static_cast<std::uint32_t>(digits) - 1)], 1);
        }
        __syncthreads();
        if (threadIdx.x < warp_threads) choose_digit(found, digits, t.ties, digit, ties);
        __syncthreads();
        t = {t.key | static_cast<std::uint32_t>(digit) << shift, ties};
        above = shift;
        __syncthreads();
    }
    return t;
}

// Ranks in order: how many threads before this one, in the whole block, are above and are equal; then the block's own are added to what was before.
struct Ranks {
    int above = 0, equal = 0;
};
__device__ __forceinline__ Ranks ranks_of(bool above, bool equal, Ranks& before, int (&warps)[2][most_warps]) {
    const unsigned lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads, below = (1u << lane) - 1;
    const unsigned all_above = __ballot_sync(all_lanes, above), all_equal = __ballot_sync(all_lanes, equal);
    if (lane == 0) warps[0][warp] = __popc(all_above), warps[1][warp] = __popc(all_equal);
    __syncthreads();
    const int a = warps[0][lane], e = warps[1][lane];
    Ranks mine{before.above + warp_reduce(lane < warp ? a : 0, Sum{}) + __popc(all_above & below),
               before.equal + warp_reduce(lane < warp ? e : 0, Sum{}) + __popc(all_equal & below)};
    before.above += warp_reduce(a, Sum{});
    before.equal += warp_reduce(e, Sum{});
    __syncthreads();
    return mine;
}

__global__ void __launch_bounds__(choose_threads) choose_largest(const Compress c, std::byte* packets, const PacketSizes sizes, int whole_k,
                                                                 int last_k) {
    __shared__ int warps[2][most_warps];
    const std::int64_t slice = blockIdx.x / sizes.blocks, block = blockIdx.x % sizes.blocks;
    const std::int64_t first = slice * c.count + block * sizes.grain, rest = c.count - block * sizes.grain;
    const std::int64_t n = rest < sizes.grain ? rest : sizes.grain;
    const int k = n == sizes.grain ? whole_k : last_k;
    std::byte *const values = packets + slice * sizes.packet + block * sizes.block, *const places = values + 4 * k;
    // With a residual x is made once and waits where the unsent will be.
    if (c.residual)
        for (std::int64_t i = threadIdx.x; i < n; i += choose_threads) c.unsent[first + i] = element_to_pack(c, first + i);
    const auto x = [&](std::int64_t i) { return c.residual ? c.unsent[first + i] : load_as(c.gradient, c.type, first + i); };
    const Threshold t = kth_largest(n, k, [&](std::int64_t i) { return magnitude(x(i)); });
    const float back = 1.0f / c.scale;
    Ranks before;
    for (std::int64_t i = threadIdx.x; i < n; i += choose_threads) {  // n is of whole turns
        const float v = x(i);
        const std::uint32_t key = magnitude(v);
        const Ranks r = ranks_of(key > t.key, key == t.key, before, warps);
        const bool sent = key > t.key || (key == t.key && r.equal < t.ties);
        if (sent) {
            const int at = r.above + (r.equal < t.ties ? r.equal : t.ties);
            put(values + 4 * at, v);
            reinterpret_cast<std::uint16_t*>(places)[at] = static_cast<std::uint16_t>(i);
        }
        if (c.unsent) c.unsent[first + i] = (v - (sent ? v : 0.0f)) * back;
    }
}

// The first of k ascending places that is not below `from`.
__device__ __forceinline__ int first_place(const std::uint16_t* places, int k, int from) {
    int low = 0, high = k;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (places[middle] < from) low = middle + 1;
        else high = middle;
    }
    return low;
}

// A block of threads for 1024 elements: of each packet it adds the entries among them, which are of different elements.
__global__ void __launch_bounds__(add_threads) add_entries(const std::byte* packets, std::int64_t n, std::int64_t count, const PacketSizes sizes,
                                                           int whole_k, int last_k, void* to, DType type) {
    __shared__ float sum[packing_block];
    for (int i = static_cast<int>(threadIdx.x); i < packing_block; i += add_threads) sum[i] = 0.0f;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * packing_block, block = first / sizes.grain;
    const int k = count - block * sizes.grain < sizes.grain ? last_k : whole_k, from = static_cast<int>(first - block * sizes.grain);
    __syncthreads();
    for (std::int64_t p = 0; p < n; ++p) {
        const std::byte* const values = packets + p * sizes.packet + block * sizes.block;
        const auto* const places = reinterpret_cast<const std::uint16_t*>(values + 4 * k);
        const int end = first_place(places, k, from + static_cast<int>(packing_block));
        for (int e = first_place(places, k, from) + static_cast<int>(threadIdx.x); e < end; e += add_threads)
            sum[places[e] - from] += value_at(values + 4 * e);
        __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < packing_block; i += add_threads) store_as(to, type, first + i, sum[i]);
}

// Entries of a whole block and of the last one of `count` elements.
struct Entries {
    int whole, last;
    Entries(const Packing& p, std::int64_t count)
        : whole(static_cast<int>(topk_count(p, topk_block))), last(count % topk_block ? static_cast<int>(topk_count(p, count % topk_block)) : 0) {}
};

}  // namespace

void compress_topk(const Compress& c, std::byte* packets, cudaStream_t stream) {
    const PacketSizes sizes(c.packing, c.count);
    const Entries k(c.packing, c.count);
    launch(choose_largest, Grid{static_cast<unsigned>(c.slices * sizes.blocks), choose_threads}, stream, c, packets, sizes, k.whole, k.last);
}

void decompress_topk(const Packing& p, const std::byte* packets, std::int64_t n, void* sum, DType type, std::int64_t count, cudaStream_t stream) {
    const PacketSizes sizes(p, count);
    const Entries k(p, count);
    launch(add_entries, Grid{static_cast<unsigned>(count / packing_block), add_threads}, stream, packets, n, count, sizes, k.whole, k.last, sum,
           type);
}

}  // namespace quadrille::cuda

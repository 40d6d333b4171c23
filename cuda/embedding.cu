// Look-ups copy rows. The gradient sorts the tokens by row with a stable radix sort, so that one block of threads has all terms of a row and adds
// them in token order in f32, rounded once: the same bits every time, no atomic additions of floats.
//
// The sort takes a digit of 8 bits at a time, 2 passes for 50,000 rows: tiles of tokens count their digits, one block makes of the counts the places
// where each tile's tokens of each digit go, the tiles put them there. Tokens of other ranks' rows sort behind all rows.
#include "base/rounding.hpp"
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/pack.cuh"
#include "cuda/reduce.cuh"
#include "cuda/typed.cuh"

#include <algorithm>
#include <bit>

namespace quadrille {
namespace {

using namespace cuda;

constexpr int digit_bits = 8, digits = 1 << digit_bits;
constexpr unsigned tile_threads = digits, tile_warps = tile_threads / warp_threads;  // a thread for each digit
constexpr std::int64_t warp_tokens = 256, tile_tokens = tile_warps * warp_tokens;
constexpr unsigned scan_threads = 1024, most_row_threads = 256;
constexpr unsigned most_blocks = 1u << 20;  // the rest by turns

constexpr std::int64_t tiles_of(const Embedding& e) { return ceil_div(e.tokens, tile_tokens); }
constexpr int digits_of(const Embedding& e) {
    return static_cast<int>(ceil_div(std::bit_width(static_cast<std::uint64_t>(e.rows)), digit_bits));
}

// The workspace: the tokens in two orders, of which each pass reads one and writes the other, and a number for each digit and tile.
struct Scratch {
    std::int64_t *from, *to, *counts;
    Scratch(const Embedding& e, void* workspace)
        : from(static_cast<std::int64_t*>(workspace)), to(from + e.tokens), counts(to + e.tokens) {}
    static std::int64_t bytes(const Embedding& e) {
        return static_cast<std::int64_t>(sizeof(std::int64_t)) * (2 * e.tokens + digits * tiles_of(e));
    }
};

// The row of the local table of token i; e.rows for one of another rank.
__device__ __forceinline__ std::int64_t row_of(const Embedding& e, const std::int32_t* ids, std::int64_t i) {
    const std::int64_t row = ids[i] - e.first_row;
    return row >= 0 && row < e.rows ? row : e.rows;
}

// ---- look-up

template <class Element>
__global__ void copy_rows(const Embedding e, const std::int32_t* ids, const Element* table, Element* y, std::int64_t row_size) {
    for (std::int64_t i = blockIdx.x; i < e.tokens; i += gridDim.x) {
        const std::int64_t row = row_of(e, ids, i);
        for (std::int64_t c = threadIdx.x; c < row_size; c += blockDim.x) y[i * row_size + c] = row < e.rows ? table[row * row_size + c] : Element{};
    }
}

// ---- sort

// Where the turn's token of this lane stands in the old order, and its digit.
struct Turn {
    std::int64_t token = 0;
    int digit = 0;
    unsigned peers = 0;  // lanes with the same digit; none where the tokens are at their end
};
__device__ __forceinline__ Turn turn_of(const Embedding& e, const std::int32_t* ids, const std::int64_t* order, int shift, std::int64_t place) {
    Turn t;
    const bool there = place < e.tokens;
    if (there) {
        t.token = order ? order[place] : place;
        t.digit = static_cast<int>(row_of(e, ids, t.token) >> shift & (digits - 1));
    }
    unsigned peers = __ballot_sync(all_lanes, there);
    for (int bit = 0; bit < digit_bits; ++bit) {
        const bool set = (t.digit >> bit & 1) != 0;
        const unsigned those = __ballot_sync(all_lanes, set);
        peers &= set ? those : ~those;
    }
    t.peers = there ? peers : 0;
    return t;
}

// Every warp counts the digits of its stretch of the tile; a lane speaks for its peers.
__device__ __forceinline__ void count_stretch(const Embedding& e, const std::int32_t* ids, const std::int64_t* order, int shift,
                                              int (&found)[digits]) {
    const unsigned lane = threadIdx.x % warp_threads;
    const std::int64_t first = blockIdx.x * tile_tokens + threadIdx.x / warp_threads * warp_tokens;
    for (int d = static_cast<int>(lane); d < digits; d += warp_threads) found[d] = 0;
    __syncwarp();
    for (std::int64_t place = first + lane; place < first + warp_tokens + lane; place += warp_threads) {
        const Turn t = turn_of(e, ids, order, shift, place);
        if (t.peers != 0 && (t.peers & ((1u << lane) - 1)) == 0) found[t.digit] += __popc(t.peers);
        __syncwarp();
    }
}

__global__ void __launch_bounds__(tile_threads) count_digits(const Embedding e, const std::int32_t* ids, const std::int64_t* order, int shift,
                                                             std::int64_t* counts) {
    __shared__ int found[tile_warps][digits];
    count_stretch(e, ids, order, shift, found[threadIdx.x / warp_threads]);
    __syncthreads();
    std::int64_t sum = 0;
    for (unsigned w = 0; w < tile_warps; ++w) sum += found[w][threadIdx.x];
    counts[threadIdx.x * gridDim.x + blockIdx.x] = sum;
}

// Of each count, what all before it add up to.
__global__ void __launch_bounds__(scan_threads) add_up(std::int64_t* counts, std::int64_t size) {
    __shared__ long long ends[2][scan_threads];
    const std::int64_t share = (size + scan_threads - 1) / scan_threads, first = threadIdx.x * share;
    const std::int64_t last = first + share < size ? first + share : size;
    long long sum = 0;
    for (std::int64_t i = first; i < last; ++i) sum += counts[i];
    int now = 0;
    ends[now][threadIdx.x] = sum;
    __syncthreads();
    for (unsigned distance = 1; distance < scan_threads; distance *= 2, now = 1 - now) {
        ends[1 - now][threadIdx.x] = ends[now][threadIdx.x] + (threadIdx.x >= distance ? ends[now][threadIdx.x - distance] : 0);
        __syncthreads();
    }
    long long before = ends[now][threadIdx.x] - sum;
    for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t here = counts[i];
        counts[i] = before;
        before += here;
    }
}

__global__ void __launch_bounds__(tile_threads) place_tokens(const Embedding e, const std::int32_t* ids, const std::int64_t* order, int shift,
                                                             const std::int64_t* places, std::int64_t* to) {
    __shared__ int found[tile_warps][digits];
    __shared__ long long begins[digits];
    const unsigned warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
    count_stretch(e, ids, order, shift, found[warp]);
    __syncthreads();
    begins[threadIdx.x] = places[threadIdx.x * gridDim.x + blockIdx.x];
    int before = 0;
    for (unsigned w = 0; w < tile_warps; ++w) {
        const int here = found[w][threadIdx.x];
        found[w][threadIdx.x] = before;
        before += here;
    }
    __syncthreads();
    const std::int64_t first = blockIdx.x * tile_tokens + warp * warp_tokens;
    for (std::int64_t place = first + lane; place < first + warp_tokens + lane; place += warp_threads) {
        const Turn t = turn_of(e, ids, order, shift, place);
        const int earlier = __popc(t.peers & ((1u << lane) - 1));
        const int next = found[warp][t.digit];
        __syncwarp();
        if (t.peers != 0) {
            to[begins[t.digit] + next + earlier] = t.token;
            if (earlier == 0) found[warp][t.digit] = next + __popc(t.peers);
        }
        __syncwarp();
    }
}

// ---- sums

// The end of the run of equal rows that begins at `first`: steps that double, then halves.
__device__ __forceinline__ std::int64_t run_end(const Embedding& e, const std::int32_t* ids, const std::int64_t* order, std::int64_t first) {
    const std::int64_t row = row_of(e, ids, order[first]);
    std::int64_t inside = first, step = 1;
    while (inside + step < e.tokens && row_of(e, ids, order[inside + step]) == row) inside += step, step *= 2;
    std::int64_t outside = inside + step < e.tokens ? inside + step : e.tokens;
    while (outside - inside > 1) {
        const std::int64_t middle = inside + (outside - inside) / 2;
        if (row_of(e, ids, order[middle]) == row) inside = middle;
        else outside = middle;
    }
    return outside;
}

struct Terms {
    const void* dy;
    DType dy_type;
    void* table;
    DType table_type;
    bool fours;  // rows of both are whole groups of four elements, each one access
};

// A block where a run of one row begins adds it to the row of the table.
__global__ void __launch_bounds__(most_row_threads) sum_runs(const Embedding e, const std::int32_t* ids, const std::int64_t* order, const Terms t) {
    for (std::int64_t first = blockIdx.x; first < e.tokens; first += gridDim.x) {
        const std::int64_t row = row_of(e, ids, order[first]);
        if (row == e.rows || (first > 0 && row_of(e, ids, order[first - 1]) == row)) continue;
        const std::int64_t end = run_end(e, ids, order, first);
        if (!t.fours) {
            for (std::int64_t c = threadIdx.x; c < e.h; c += blockDim.x) {
                float sum = 0.0f;
                for (std::int64_t i = first; i < end; ++i) sum += load_as(t.dy, t.dy_type, order[i] * e.h + c);
                store_as(t.table, t.table_type, row * e.h + c, load_as(t.table, t.table_type, row * e.h + c) + sum);
            }
            continue;
        }
        for (std::int64_t c = 4 * static_cast<std::int64_t>(threadIdx.x); c < e.h; c += 4 * static_cast<std::int64_t>(blockDim.x)) {
            float sum[4] = {}, x[4];
#pragma unroll 4
            for (std::int64_t i = first; i < end; ++i) {
                load_four_as(t.dy, t.dy_type, order[i] * e.h + c, x);
                for (int k = 0; k < 4; ++k) sum[k] += x[k];
            }
            load_four_as(t.table, t.table_type, row * e.h + c, x);
            for (int k = 0; k < 4; ++k) x[k] += sum[k];
            store_four_as(t.table, t.table_type, row * e.h + c, x);
        }
    }
}

// A thread for each `accesses` of a row, in whole warps.
Grid grid_of_rows(const Embedding& e, std::int64_t accesses) {
    const std::int64_t threads = std::clamp<std::int64_t>(aligned_up(accesses, warp_threads), warp_threads, most_row_threads);
    return {static_cast<unsigned>(std::min<std::int64_t>(e.tokens, most_blocks)), static_cast<unsigned>(threads)};
}

}  // namespace

void CudaKernels::embedding(const Embedding& e, const std::int32_t* ids, const void* table, void* y, DType t) {
    const std::int64_t bytes = e.h * bytes_of(t);
    const auto copy = [&]<class Element>(Element) {
        const std::int64_t row_size = bytes / static_cast<std::int64_t>(sizeof(Element));
        launch(copy_rows<Element>, grid_of_rows(e, row_size), stream_, e, ids, static_cast<const Element*>(table), static_cast<Element*>(y),
               row_size);
    };
    if (packable(table, y) && packable(bytes)) copy(uint4{});
    else if (bytes_of(t) == 4) copy(std::uint32_t{});
    else copy(std::uint16_t{});
}

void CudaKernels::embedding_dw(const Embedding& e, const std::int32_t* ids, const void* dy, DType dy_type, void* dtable, DType dtable_type,
                               bool accumulate, void* workspace) {
    if (!accumulate) zero(dtable, e.rows * e.h * bytes_of(dtable_type));
    if (e.tokens == 0 || e.rows == 0) return;
    Scratch s(e, workspace);
    const Grid tiles{static_cast<unsigned>(tiles_of(e)), tile_threads};
    const std::int64_t* order = nullptr;  // at first as they are
    for (int pass = 0; pass < digits_of(e); ++pass) {
        const int shift = pass * digit_bits;
        launch(count_digits, tiles, stream_, e, ids, order, shift, s.counts);
        launch(add_up, Grid{1, scan_threads}, stream_, s.counts, digits * tiles_of(e));
        launch(place_tokens, tiles, stream_, e, ids, order, shift, s.counts, s.to);
        order = s.to;
        std::swap(s.from, s.to);
    }
    const bool fours = e.h % 4 == 0 && behind_four(dy, dy_type) == 0 && behind_four(dtable, dtable_type) == 0;
    launch(sum_runs, grid_of_rows(e, fours ? e.h / 4 : e.h), stream_, e, ids, order, Terms{dy, dy_type, dtable, dtable_type, fours});
}

std::int64_t CudaKernels::embedding_dw_workspace(const Embedding& e) const { return Scratch::bytes(e); }

}  // namespace quadrille

// What a block of attention's kernels does besides products: bring tiles into shared memory, find the tiles that are seen, mask scores and drop
// probabilities by global positions, write results. The kernels: attention_forward.cu, attention_queries.cu (dq), attention_keys.cu (dk, dv).
//
// Scores lie as attention_products.cuh says, with queries along the rows, or along the columns where the template parameter `turned` is true.
#pragma once
#include "base/random.hpp"
#include "cuda/attention_call.hpp"
#include "cuda/attention_products.cuh"
#include "cuda/pack.cuh"

#include <bit>

namespace quadrille::cuda {

constexpr float log2_e = 1.44269504f;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// The index of element 0 of row (b, position, head) in an array [b, positions, heads, d].
constexpr std::int64_t row_at(std::int64_t positions, std::int64_t heads, std::int64_t d, std::int64_t b, std::int64_t position, std::int64_t head) {
    return ((b * positions + position) * heads + head) * d;
}

// The place of this lane's scores: rows 16 m + 8 h + g, columns 8 n + 2 t + e.
struct Lane {
    int g, t;
    __device__ Lane() : g(static_cast<int>(threadIdx.x % 32 / 4)), t(static_cast<int>(threadIdx.x % 4)) {}
};

// ---- tiles into shared memory

// tile[rows, head] = x[.., d], rows `stride` elements apart, of which `count` exist; the others and the channels to the next 16 become zeros. Copies
// are started, not awaited, where rows are packed.
template <class T, int head>
__device__ __forceinline__ void load_tile(T* tile, const T* x, std::int64_t stride, int rows, int count, int d, bool packed) {
    constexpr int row = row_elements(sizeof(T), head), pack = pack_size<T>, packs = head / pack;
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), channels = (d + 15) / 16 * 16;
    if (packed) {
#pragma unroll 4
        for (int i = thread; i < rows * packs; i += threads) {
            const int r = i / packs, c = i % packs * pack;
            if (c >= channels) continue;
            const bool exists = r < count && c < d;
            copy_16(tile + r * row + c, exists ? x + r * stride + c : x, exists);
        }
    } else {
#pragma unroll 1
        for (int i = thread; i < rows * head; i += threads) {
            const int r = i / head, c = i % head;
            if (c < channels) tile[r * row + c] = r < count && c < d ? x[r * stride + c] : T(0.0f);
        }
    }
}

// ---- tiles that are seen

// A tile of columns: its number, and whether all of its scores are seen (and exist). Or none, after the last. In one register.
class Turn {
  public:
    Turn() = default;
    __device__ Turn(int tile, bool all) : is_(2 * tile + (all ? 1 : 0)) {}
    __device__ explicit operator bool() const { return is_ >= 0; }
    __device__ int tile() const { return is_ / 2; }
    __device__ bool all() const { return is_ % 2 != 0; }

  private:
    int is_ = -1;
};

// Which of 32 tiles are seen, a bit each: every lane tells of one, so that a warp knows of them all, and each warp of the block finds the same.
struct TileSet {
    unsigned some = 0, all = 0;

    template <class Test>
    __device__ __forceinline__ void look(int first, int tiles, const Test& test) {
        const int tile = first + static_cast<int>(threadIdx.x % 32);
        const Seen is = tile < tiles ? test(tile) : Seen::none;
        some = __ballot_sync(0xFFFFFFFFu, is != Seen::none);
        all = __ballot_sync(0xFFFFFFFFu, is == Seen::all);
    }
    __device__ __forceinline__ Turn take(int first) {
        const int bit = std::countr_zero(some);
        some &= some - 1;
        return {first + bit, (all >> bit & 1u) != 0};
    }
};

// The tiles of keys that a block's tile of queries sees, ascending.
template <int rows, int columns>
class KeyTiles {
  public:
    __device__ KeyTiles(const AttentionCall& call, int b, int tile) : call_(call), b_(b), tile_(tile) {}

    __device__ __forceinline__ Turn next() {
        const std::int64_t s = call_.a.shape.s, t = call_.a.shape.t;
        const int tiles = static_cast<int>(parts_of(t, columns));
        while (set_.some == 0) {
            first_ += 32;
            if (first_ >= tiles) return {};
            const QueryBounds q = tile_bounds(call_.queries + b_ * parts_of(s, strip), tile_, rows, s);
            set_.look(first_, tiles, [&](std::int64_t j) {
                const Seen is = seen(q, tile_bounds(call_.keys, j, columns, t));
                return is == Seen::all && (j + 1) * columns > t ? Seen::some : is;
            });
        }
        return set_.take(first_);
    }

  private:
    const AttentionCall& call_;
    int b_, tile_, first_ = -32;
    TileSet set_;
};

// The tiles of queries that see a block's tile of keys: of each query head of the kv head in order, ascending.
template <int rows, int columns>
class QueryTiles {
  public:
    __device__ QueryTiles(const AttentionCall& call, int b, int kv_head, int tile)
        : call_(call), b_(b), kv_head_(kv_head), tile_(tile), first_(static_cast<int>(parts_of(call.a.shape.s, columns))) {}

    __device__ __forceinline__ Turn next() {
        const std::int64_t s = call_.a.shape.s;
        const int tiles = static_cast<int>(parts_of(s, columns));
        while (set_.some == 0) {
            first_ += 32;
            if (first_ >= tiles) {
                first_ = 0;
                do ++n_;
                while (n_ < call_.a.shape.n && call_.a.kv_head[n_] != kv_head_);
            }
            if (n_ >= call_.a.shape.n) return {};
            const KeyBounds k = tile_bounds(call_.keys, tile_, rows, call_.a.shape.t);
            // Queries that do not exist need no mask: their statistics make all probabilities 0.
            set_.look(first_, tiles, [&](std::int64_t i) { return seen(tile_bounds(call_.queries + b_ * parts_of(s, strip), i, columns, s), k); });
        }
        return set_.take(first_);
    }
    __device__ __forceinline__ int head() const { return n_; }  // of the turn taken last

  private:
    const AttentionCall& call_;
    int b_, kv_head_, tile_, n_ = -1, first_;
    TileSet set_;
};

// ---- masks and dropout

// The key positions that query i sees, both included; none where there is no such query.
struct Sight {
    std::int64_t oldest = std::numeric_limits<std::int64_t>::max(), newest = std::numeric_limits<std::int64_t>::min();
};
__device__ __forceinline__ Sight sight_of(const Attention& a, int b, int i) {
    if (i >= a.shape.s) return {};
    return {a.document_start ? a.document_start[b * a.shape.s + i] : std::numeric_limits<std::int64_t>::min(), a.q_position[i]};
}
// Of keys that do not exist: later than all.
__device__ __forceinline__ std::int64_t position_of(const Attention& a, int j) {
    return j < a.shape.t ? a.k_position[j] : std::numeric_limits<std::int64_t>::max();
}
__device__ __forceinline__ bool sees(const Sight& q, std::int64_t position) {
    return q.oldest <= position && position <= q.newest;
}

// A bit for each score of this lane.
template <int m_tiles, int n_tiles>
class Bits {
  public:
    // of(i, j): the bit of row i and column j of the warp's scores. Not unrolled over columns: what comes between two products has few registers.
    template <class Of>
    static __device__ __forceinline__ Bits where(const Of& of) {
        const Lane lane;
        Bits bits;
#pragma unroll 1
        for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
            for (int k = 0; k < 4 * m_tiles; ++k) {
                const bool is = of(16 * (k / 4) + 8 * (k / 2 % 2) + lane.g, 8 * n + 2 * lane.t + k % 2);
                bits.bits_ |= std::uint64_t{is} << (4 * m_tiles * n + k);
            }
        }
        return bits;
    }
    __device__ __forceinline__ bool operator()(int m, int n, int i) const { return (bits_ >> (4 * m_tiles * n + 4 * m + i) & 1u) != 0; }

  private:
    static_assert(4 * m_tiles * n_tiles <= 64);
    std::uint64_t bits_ = 0;
};

// Scores that are not seen become -inf. `row` and `column` are the first query and key of the warp's scores; turned, the first key and query.
template <bool turned, int m_tiles, int n_tiles>
__device__ __forceinline__ void mask(Sums<m_tiles, n_tiles>& scores, const Attention& a, int b, int row, int column) {
    const auto bits = Bits<m_tiles, n_tiles>::where([&](int i, int j) {
        return turned ? sees(sight_of(a, b, column + j), position_of(a, row + i)) : sees(sight_of(a, b, row + i), position_of(a, column + j));
    });
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int n = 0; n < n_tiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (!bits(m, n, i)) scores[m][n][i] = minus_infinity;
}

// What each probability of a tile is multiplied with: 0, or 1/(1-rate) where it is kept; 1 without dropout.
template <int m_tiles, int n_tiles>
class Drops {
  public:
    // As mask(). The element of query and key counts on by the key's position, so that the query's part of it goes into the random key.
    template <bool turned>
    __device__ __forceinline__ void draw(const Attention& a, int b, int n, int row, int column) {
        const AttentionDropout& drop = a.dropout;
        const auto seq = static_cast<std::uint64_t>(drop.seq);
        const std::uint64_t matrix = static_cast<std::uint64_t>(drop.sample[b] * drop.heads + drop.head[n]) * seq;
        const std::uint32_t threshold = keep_threshold(drop.rate);
        kept_ = Bits<m_tiles, n_tiles>::where([&](int i, int j) {
            const int query = turned ? column + j : row + i, key = turned ? row + i : column + j;
            const auto position = static_cast<std::uint64_t>(query < a.shape.s ? a.q_position[query] : 0);
            return keeps(drop.key + (matrix + position) * seq * random_step, static_cast<std::uint64_t>(position_of(a, key)), threshold);
        });
        factor_ = 1.0f / (1.0f - drop.rate);
        any_ = true;
    }
    __device__ __forceinline__ float factor(int m, int n, int i) const { return !any_ ? 1.0f : kept_(m, n, i) ? factor_ : 0.0f; }

  private:
    Bits<m_tiles, n_tiles> kept_;
    float factor_ = 1.0f;
    bool any_ = false;
};

// ---- the backward pass

// In: scores are raw, d_p is d_o vᵀ. Out: scores become the probabilities that v was weighted with, d_p the gradient of the scaled scores.
// `of(m, i)` or, turned, `of(n, i)`: the statistics of that score's query.
template <int m_tiles, int n_tiles, class StatisticsOf>
__device__ __forceinline__ void differentiate_softmax(Sums<m_tiles, n_tiles>& scores, Sums<m_tiles, n_tiles>& d_p, float scale,
                                                      const Drops<m_tiles, n_tiles>& drops, const StatisticsOf& of) {
    const float scale_2 = scale * log2_e;
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const QueryStatistics q = of(m, n, i);
                const float p = exp2_fast(fmaf(scores[m][n][i], scale_2, -q.lse));
                const float factor = drops.factor(m, n, i);
                scores[m][n][i] = p * factor;
                d_p[m][n][i] = p * fmaf(d_p[m][n][i], factor, -q.delta);
            }
        }
    }
}

// ---- results

// y[at], y[at + 1] = x (+ what is there): elements of y, of which the second is there if `two`; as one access if `packed`.
template <class Y>
__device__ __forceinline__ void store_two(Y* y, float x_0, float x_1, bool two, bool packed) {
    if constexpr (std::same_as<Y, float>) {
        if (packed) *reinterpret_cast<float2*>(y) = {x_0, x_1};
    } else {
        if (packed) *reinterpret_cast<std::uint32_t*>(y) = pair<Y>(x_0, x_1);
    }
    if (packed) return;
    store(y[0], x_0);
    if (two) store(y[1], x_1);
}

// Where a block's gradient rows go: y[count.., d], rows `stride` elements apart, of f32 if `wide`, else of T.
struct Target {
    void* y;
    std::int64_t at, stride;
    int count, d;
    bool wide, accumulate, packed;
};

// y = factor x (+ y) of the rows of this warp, which begin at row `row` of the target.
template <class T, int m_tiles, int n_tiles>
__device__ __forceinline__ void store_sums(const Sums<m_tiles, n_tiles>& x, const Target& to, int row, float factor) {
    const Lane lane;
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int i = row + 16 * m + 8 * h + lane.g;
            if (i >= to.count) continue;
#pragma unroll
            for (int n = 0; n < n_tiles; ++n) {
                const int c = 8 * n + 2 * lane.t;
                if (c >= to.d) continue;
                const bool two = c + 1 < to.d;
                float x_0 = factor * x[m][n][2 * h], x_1 = factor * x[m][n][2 * h + 1];
                const std::int64_t at = to.at + i * to.stride + c;
                if (to.wide) {
                    float* const y = static_cast<float*>(to.y) + at;
                    if (to.accumulate) x_0 += y[0], x_1 += two ? y[1] : 0.0f;
                    store_two(y, x_0, x_1, two, to.packed);
                } else {
                    store_two(static_cast<T*>(to.y) + at, x_0, x_1, two, to.packed);
                }
            }
        }
    }
}

}  // namespace quadrille::cuda

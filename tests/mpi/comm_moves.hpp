// Moves with random buffers and their plain references, for the tests of the engine. A Case is the same on every rank up to the
// rank's own data: everything is a function of (seed, rank, element), so each rank computes what all others hold.
#pragma once
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "comm/engine.hpp"
#include "comm/node_grid.hpp"

namespace quadrille::test {

inline std::int64_t pick(std::uint64_t key, std::uint64_t draw, std::int64_t below) {
    return static_cast<std::int64_t>(random_bits(key, draw) % static_cast<std::uint64_t>(below));
}

// Whole: small whole numbers, whose sums are exact in any order.
template <class T>
T value(std::uint64_t seed, int rank, std::int64_t i, bool whole = false) {
    const std::uint64_t bits = random_bits(random_key(seed, rank), static_cast<std::uint64_t>(i));
    if (whole) return T(static_cast<float>(bits >> 60) - 8.0F);
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(bits % 2001) - 1000;
    else
        return T(static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-52 - 1.0));
}

template <class T>
T reduce(ReduceOp op, T a, T b) {
    if constexpr (HalfWidth<T>) {
        const auto x = static_cast<float>(a), y = static_cast<float>(b);
        return T(op == ReduceOp::sum ? x + y : std::max(x, y));
    } else {
        return op == ReduceOp::sum ? static_cast<T>(a + b) : std::max(a, b);
    }
}

// The reference: terms of n members in ring order ending at member `owner`.
template <class Term>
auto ring_sum(ReduceOp op, int n, int owner, Term term) {
    auto sum = term((owner + 1) % n);
    for (int k = 2; k <= n; ++k) sum = reduce(op, sum, term((owner + k) % n));
    return sum;
}

// And in the order of recursive doubling, which serves scalars.
template <class Term>
auto tree_sum(ReduceOp op, int n, Term term) {
    std::vector<decltype(term(0))> sums;
    int power = 1;
    while (2 * power <= n) power *= 2;
    for (int k = 0; k < power; ++k) sums.push_back(k + power < n ? reduce(op, term(k), term(k + power)) : term(k));
    for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
        // Bit by bit from the lowest: neighbours first.
        for (std::size_t k = 0; 2 * k < sums.size(); ++k) sums[k] = reduce(op, sums[2 * k], sums[2 * k + 1]);
    }
    return sums[0];
}

enum class Cut { equal, contiguous, strided, zigzag, lopsided };

// Slices of `count` elements for n members; together all elements, each once.
inline std::vector<Slice> cut_slices(Cut cut, std::int64_t count, int n, std::uint64_t key) {
    std::vector<Slice> slices(static_cast<std::size_t>(n));
    const auto part = [&](std::int64_t j, std::int64_t of) { return equal_cut(count, of, j); };
    for (int i = 0; i < n; ++i) {
        Slice& slice = slices[static_cast<std::size_t>(i)];
        if (cut == Cut::equal || cut == Cut::contiguous) slice = {part(i, n)};
        if (cut == Cut::zigzag) slice = {part(i, 2 * n), part(2 * n - 1 - i, 2 * n)};
        if (cut == Cut::lopsided && i == pick(key, 1, n)) slice = {{0, count}};
        if (cut != Cut::strided) continue;
        const std::int64_t width = 1 + pick(key, 2, 7);
        for (std::int64_t at = i * width; at < count; at += n * width) slice.push_back({at, std::min(width, count - at)});
    }
    return slices;
}

struct Case {
    Move move;
    std::vector<std::vector<std::byte>> buffers, expected;  // expected[k] is what buffers[k] must hold in the end
    std::string name;
    MoveTimes times;
};

template <class T>
struct Maker {
    std::uint64_t seed;
    std::vector<int> ranks;
    int me;  // member
    DType dtype;
    bool whole = false;  // the values
    NodeGrid grid = {};  // of a group that sums in two levels

    int n() const { return static_cast<int>(ranks.size()); }
    std::vector<T> filled(std::int64_t count, int member, std::uint64_t salt = 0) const {
        std::vector<T> x(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
            x[static_cast<std::size_t>(i)] = at(member, i, salt);
        return x;
    }
    T at(int member, std::int64_t i, std::uint64_t salt = 0) const {
        return value<T>(seed + salt, ranks[static_cast<std::size_t>(member)], i, whole);
    }
    T sum(ReduceOp op, int owner, std::int64_t i, std::uint64_t salt = 0) const {
        const auto term = [&](int member) { return at(member, i, salt); };
        if (grid.flat()) return ring_sum(op, n(), owner, term);
        const auto place = static_cast<int>(std::find(grid.members.begin(), grid.members.end(), owner) - grid.members.begin());
        const auto of_node = [&](int a) {
            return ring_sum(op, grid.per_node, place % grid.per_node, [&](int b) { return term(grid.member(a, b)); });
        };
        return ring_sum(op, grid.nodes, place / grid.per_node, of_node);
    }
    // What a buffer that nobody writes must keep.
    std::vector<T> blank(std::int64_t count) const { return std::vector<T>(static_cast<std::size_t>(count), value<T>(7, 7, 7)); }
    static int put(Case& c, const std::vector<T>& now, const std::vector<T>& then) {
        const auto bytes = [](const std::vector<T>& v) {
            const auto* data = reinterpret_cast<const std::byte*>(v.data());
            return std::vector<std::byte>(data, data + v.size() * sizeof(T));
        };
        c.buffers.push_back(bytes(now));
        c.expected.push_back(bytes(then));
        return static_cast<int>(c.buffers.size()) - 1;
    }
    // Segments point into buffers once these no longer move.
    static void* buffer_at(Case& c, int buffer) { return c.buffers[static_cast<std::size_t>(buffer)].data(); }

    void all_reduce(Case& c, ReduceOp op, const std::vector<std::int64_t>& counts, bool in_place) const {
        c.move.op = op;
        const bool scalars = counts.size() <= 8 && std::all_of(counts.begin(), counts.end(), [](std::int64_t k) { return k <= 1; });
        std::uint64_t salt = 0;
        for (const std::int64_t count : counts) {
            std::vector<T> sums(static_cast<std::size_t>(count));
            for (int owner = 0; owner < n(); ++owner) {
                const Extent e = equal_cut(count, n(), owner);
                for (std::int64_t i = e.offset; i < e.offset + e.count; ++i)
                    sums[static_cast<std::size_t>(i)] =
                        scalars ? tree_sum(op, n(), [&](int member) { return at(member, i, salt); }) : sum(op, owner, i, salt);
            }
            const std::vector<T> mine = filled(count, me, salt++);
            put(c, mine, in_place ? sums : mine);
            if (!in_place) put(c, blank(count), sums);
        }
        for (std::size_t k = 0; k < counts.size(); ++k) {
            const int in = static_cast<int>(in_place ? k : 2 * k);
            c.move.segments.push_back({buffer_at(c, in), buffer_at(c, in_place ? in : in + 1), counts[k]});
        }
    }

    // In place: into the member's own slice of the whole, as ZeRO's first stage does.
    void reduce_scatter(Case& c, ReduceOp op, std::int64_t count, Cut cut, bool in_place) const {
        c.move.op = op;
        const std::vector<Slice> slices = cut_slices(cut, count, n(), seed);
        std::vector<T> sums;
        for (const Extent& e : slices[static_cast<std::size_t>(me)])
            for (std::int64_t i = e.offset; i < e.offset + e.count; ++i) sums.push_back(sum(op, me, i));
        in_place = in_place && (cut == Cut::equal || cut == Cut::contiguous);
        const std::vector<T> mine = filled(count, me);
        const Extent own = equal_cut(count, n(), me);
        std::vector<T> then = mine;
        if (in_place) std::copy(sums.begin(), sums.end(), then.begin() + own.offset);
        put(c, mine, then);
        put(c, blank(static_cast<std::int64_t>(sums.size())), in_place ? blank(static_cast<std::int64_t>(sums.size())) : sums);
        void* out = in_place ? static_cast<T*>(buffer_at(c, 0)) + own.offset : buffer_at(c, 1);
        c.move.segments = {{buffer_at(c, 0), out, count}};
        if (cut != Cut::equal) c.move.in_slices = slices;
    }

    void all_gather(Case& c, std::int64_t count, Cut cut, bool in_place) const {
        const std::vector<Slice> slices = cut_slices(cut, count, n(), seed);
        std::vector<T> all = blank(count), mine;
        for (int j = 0; j < n(); ++j)
            for (const Extent& e : slices[static_cast<std::size_t>(j)])
                for (std::int64_t i = e.offset; i < e.offset + e.count; ++i)
                    all[static_cast<std::size_t>(i)] = at(j, i);
        for (const Extent& e : slices[static_cast<std::size_t>(me)])
            for (std::int64_t i = e.offset; i < e.offset + e.count; ++i) mine.push_back(all[static_cast<std::size_t>(i)]);
        in_place = in_place && (cut == Cut::equal || cut == Cut::contiguous);
        std::vector<T> before = blank(count);
        const Extent own = equal_cut(count, n(), me);
        if (in_place) std::copy(mine.begin(), mine.end(), before.begin() + own.offset);
        put(c, before, all);
        put(c, mine, mine);
        const void* in = in_place ? static_cast<T*>(buffer_at(c, 0)) + own.offset : buffer_at(c, 1);
        c.move.segments = {{in, buffer_at(c, 0), count}};
        if (cut != Cut::equal) c.move.out_slices = slices;
    }

    void all_to_all(Case& c, std::int64_t count, Cut from, Cut to) const {
        // Member m sends its elements of slice j to member j; equal lengths on both sides since each buffer is cut alike.
        const std::vector<Slice> out = cut_slices(from, count, n(), seed), in = cut_slices(to, count, n(), seed + 1);
        std::vector<Slice> sends(in.size()), takes(in.size());
        std::vector<T> then = blank(count);
        for (int j = 0; j < n(); ++j) {
            const auto jj = static_cast<std::size_t>(j);
            sends[jj] = head(out[jj], length_between(out, in, me, j));
            takes[jj] = head(in[jj], length_between(out, in, j, me));
            // What j sends to me: the first elements of its slice for me.
            const std::vector<std::int64_t> theirs =
                indices(head(out[static_cast<std::size_t>(me)], length_between(out, in, j, me)));
            const std::vector<std::int64_t> places = indices(takes[jj]);
            for (std::size_t k = 0; k < theirs.size(); ++k)
                then[static_cast<std::size_t>(places[k])] = at(j, theirs[k]);
        }
        const std::vector<T> mine = filled(count, me);
        put(c, mine, mine);
        put(c, blank(count), then);
        c.move.segments = {{buffer_at(c, 0), buffer_at(c, 1), count}};
        c.move.in_slices = sends;
        c.move.out_slices = takes;
    }

    void ring_shift(Case& c, const std::vector<std::int64_t>& counts) const {
        std::uint64_t salt = 0;
        for (const std::int64_t count : counts) {
            put(c, filled(count, me, salt), filled(count, me, salt));
            put(c, blank(count), filled(count, (me + n() - 1) % n(), salt));
            ++salt;
        }
        for (std::size_t k = 0; k < counts.size(); ++k)
            c.move.segments.push_back({buffer_at(c, static_cast<int>(2 * k)), buffer_at(c, static_cast<int>(2 * k + 1)), counts[k]});
    }

  private:
    static std::vector<std::int64_t> indices(const Slice& slice) {
        std::vector<std::int64_t> all;
        for (const Extent& e : slice)
            for (std::int64_t i = 0; i < e.count; ++i) all.push_back(e.offset + i);
        return all;
    }
    static Slice head(const Slice& slice, std::int64_t count) {
        Slice first;
        for (const Extent& e : slice) {
            first.push_back({e.offset, std::min(e.count, count)});
            count -= first.back().count;
        }
        return first;
    }
    // As many elements as both the sender's slice for `to` and the place for `from` hold.
    static std::int64_t length_between(const std::vector<Slice>& out, const std::vector<Slice>& in, int from, int to) {
        const auto length = [](const Slice& s) {
            return std::accumulate(s.begin(), s.end(), std::int64_t{0},
                                   [](std::int64_t sum, const Extent& e) { return sum + e.count; });
        };
        return std::min(length(out[static_cast<std::size_t>(to)]), length(in[static_cast<std::size_t>(from)]));
    }
};

// Calls f(Maker<T>) for the type that stands for dtype.
template <class F>
void with_type(DType dtype, std::uint64_t seed, const std::vector<int>& ranks, int me, F f, bool whole = false, const NodeGrid& grid = {}) {
    switch (dtype) {
        case DType::f32: return f(Maker<float>{seed, ranks, me, dtype, whole, grid});
        case DType::f64: return f(Maker<double>{seed, ranks, me, dtype, whole, grid});
        case DType::i32: return f(Maker<std::int32_t>{seed, ranks, me, dtype, whole, grid});
        case DType::bf16: return f(Maker<bf16>{seed, ranks, me, dtype, whole, grid});
        case DType::f16: return f(Maker<f16>{seed, ranks, me, dtype, whole, grid});
        case DType::u8: return;
    }
}

}  // namespace quadrille::test

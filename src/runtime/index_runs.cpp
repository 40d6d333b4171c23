#include "runtime/index_runs.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace quadrille {
namespace {

void append(IndexRuns& to, IndexRun r) {
    if (r.count == 0) return;
    if (!to.empty() && to.back().first + to.back().count == r.first) to.back().count += r.count;
    else to.push_back(r);
}

std::int64_t total(const IndexRuns& runs) {
    std::int64_t n = 0;
    for (const IndexRun& r : runs) n += r.count;
    return n;
}

// Places begin .. begin + count of the list that the runs stand for.
void take(const IndexRuns& from, std::int64_t begin, std::int64_t count, IndexRuns& to) {
    std::int64_t at = 0;
    for (const IndexRun& r : from) {
        const std::int64_t low = std::max(begin, at), high = std::min(begin + count, at + r.count);
        if (low < high) append(to, {r.first + low - at, high - low});
        at += r.count;
    }
}

}  // namespace

IndexRuns index_runs(const Grid& grid, const TensorType& t, int dim, const Coordinate& at) {
    const auto d = static_cast<std::size_t>(dim);
    IndexRuns held = {{0, t.shape[d]}};
    for (const Cut& c : t.place.cuts[d]) {
        const std::int64_t n = grid.extent(c.axis), length = total(held);
        const std::int64_t r = ((at[c.axis] - c.turn) % n + n) % n;
        IndexRuns mine;
        if (c.layout == Layout::zigzag) {
            const std::int64_t piece = length / (2 * n);
            take(held, r * piece, piece, mine);
            take(held, (2 * n - 1 - r) * piece, piece, mine);
        } else {
            take(held, r * (length / n), length / n, mine);
        }
        held = std::move(mine);
    }
    return held;
}

IndexRuns intersection(const IndexRuns& a, const IndexRuns& b) {
    IndexRuns sorted = b, out;
    std::sort(sorted.begin(), sorted.end(), [](const IndexRun& x, const IndexRun& y) { return x.first < y.first; });
    for (const IndexRun& x : a)
        for (const IndexRun& y : sorted) {
            const std::int64_t low = std::max(x.first, y.first), high = std::min(x.first + x.count, y.first + y.count);
            if (low < high) append(out, {low, high - low});
        }
    return out;
}

IndexRuns positions_in(const IndexRuns& whole, const IndexRuns& part) {
    IndexRuns out;
    for (IndexRun left : part)
        while (left.count > 0) {
            std::int64_t at = 0, found = -1, length = 0;
            for (const IndexRun& r : whole) {
                if (left.first >= r.first && left.first < r.first + r.count) {
                    found = at + left.first - r.first;
                    length = std::min(left.count, r.first + r.count - left.first);
                    break;
                }
                at += r.count;
            }
            require(found >= 0, "runtime: a piece of a tensor is not in the whole");
            append(out, {found, length});
            left = {left.first + length, left.count - length};
        }
    return out;
}

std::int64_t first_index(const Grid& grid, const TensorType& t, int dim, const Coordinate& at) {
    const IndexRuns runs = index_runs(grid, t, dim, at);
    require(runs.size() == 1, "runtime: a piece is not one run of indices");
    return runs[0].first;
}

const std::vector<std::int64_t>& IndexLists::of(TypeId type, int dim, std::int64_t shift) {
    const auto [it, fresh] = lists_.try_emplace({type, dim, shift});
    if (fresh) {
        it->second = indices(tables_.grid(), tables_.type(type), dim, at_);
        for (std::int64_t& i : it->second) i += shift;
    }
    return it->second;
}

const std::vector<std::int64_t>& IndexLists::samples(TypeId type, std::int64_t microbatch) {
    return of(type, 0, std::max<std::int64_t>(microbatch, 0) * tables_.type(type).shape[0]);
}

const std::vector<std::int64_t>& IndexLists::kv_heads(TypeId q, TypeId k) {
    const auto [it, fresh] = kv_heads_.try_emplace({q, k, 0});
    if (!fresh) return it->second;
    const std::int64_t sharers = tables_.type(q).shape[2] / tables_.type(k).shape[2];
    const auto& here = of(k, 2);
    for (const std::int64_t head : of(q, 2)) {
        const auto found = std::find(here.begin(), here.end(), head / sharers);
        require(found != here.end(), "runtime: a query head's key-value head is not on its rank");
        it->second.push_back(found - here.begin());
    }
    return it->second;
}

}  // namespace quadrille

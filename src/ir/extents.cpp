#include "ir/extents.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace quadrille {

void append(Extents& to, Extent e) {
    if (e.count == 0) return;
    if (!to.empty() && to.back().offset + to.back().count == e.offset) to.back().count += e.count;
    else to.push_back(e);
}

std::int64_t total(const Extents& runs) {
    std::int64_t n = 0;
    for (const Extent& e : runs) n += e.count;
    return n;
}

Extents portion(const Extents& runs, std::int64_t begin, std::int64_t count) {
    Extents out;
    std::int64_t at = 0;
    for (const Extent& e : runs) {
        const std::int64_t low = std::max(begin, at), high = std::min(begin + count, at + e.count);
        if (low < high) append(out, {e.offset + low - at, high - low});
        at += e.count;
    }
    return out;
}

Extents intersection(const Extents& a, const Extents& b) {
    Extents sorted = b, out;
    std::sort(sorted.begin(), sorted.end(), [](const Extent& x, const Extent& y) { return x.offset < y.offset; });
    for (const Extent& x : a)
        for (const Extent& y : sorted) {
            const std::int64_t low = std::max(x.offset, y.offset), high = std::min(x.offset + x.count, y.offset + y.count);
            if (low < high) append(out, {low, high - low});
        }
    return out;
}

Extents positions_in(const Extents& whole, const Extents& part) {
    Extents out;
    for (Extent left : part)
        while (left.count > 0) {
            std::int64_t at = 0, found = -1, length = 0;
            for (const Extent& e : whole) {
                if (left.offset >= e.offset && left.offset < e.offset + e.count) {
                    found = at + left.offset - e.offset;
                    length = std::min(left.count, e.offset + e.count - left.offset);
                    break;
                }
                at += e.count;
            }
            require(found >= 0, "a piece of a tensor is not in the whole");
            append(out, {found, length});
            left = {left.offset + length, left.count - length};
        }
    return out;
}

}  // namespace quadrille

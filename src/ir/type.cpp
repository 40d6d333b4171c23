#include "ir/type.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace quadrille {

Cuts::Cuts(std::initializer_list<Cut> list) {
    for (const Cut& c : list) push_back(c);
}

Cuts Cuts::along(const Grid& grid, AxisSet axes, Layout layout) {
    Cuts out;
    for (const Axis a : grid.real(axes).list()) out.push_back({a, layout, 0});
    return out;
}

void Cuts::push_back(Cut c) {
    require(count < cut.size(), "a dim is cut by more than four axes");
    cut[count++] = c;
}

AxisSet Cuts::axes() const {
    AxisSet s;
    for (const Cut& c : *this) s |= c.axis;
    return s;
}

Cuts Cuts::then(const Cuts& inner) const {
    Cuts out = *this;
    for (const Cut& c : inner) out.push_back(c);
    return out;
}

bool Cuts::starts_with(const Cuts& outer) const { return outer.count <= count && std::equal(outer.begin(), outer.end(), begin()); }

bool operator==(const Cuts& a, const Cuts& b) { return a.count == b.count && std::equal(a.begin(), a.end(), b.begin()); }

AxisSet Placement::cut_axes() const {
    AxisSet s;
    for (const Cuts& c : cuts) s |= c.axes();
    return s;
}

Placement Placement::whole() const {
    Placement p = *this;
    p.partial_sum = p.partial_max = {};
    return p;
}

std::string_view name_of(Tier t) {
    constexpr std::array<std::string_view, tier_count> names = {"device", "host", "nvme"};
    return names[static_cast<std::size_t>(t)];
}

std::string_view name_of(Book b) {
    constexpr std::array<std::string_view, book_count> names = {"weights", "gradients", "optimizer", "activations", "buffers"};
    return names[static_cast<std::size_t>(b)];
}

TensorType::TensorType(std::initializer_list<std::int64_t> global, DType t, Placement p, Book b) : dtype(t), place(p), book(b) {
    require(global.size() <= max_dims, "a tensor has more than four dims");
    for (const std::int64_t n : global) shape[static_cast<std::size_t>(dims++)] = n;
}

TensorType TensorType::placed(const Placement& p) const { TensorType t = *this; t.place = p; return t; }
TensorType TensorType::in(Book b) const { TensorType t = *this; t.book = b; return t; }
TensorType TensorType::of(DType d) const { TensorType t = *this; t.dtype = d; return t; }

bool TensorType::same_place(const TensorType& o) const {
    return dims == o.dims && shape == o.shape && dtype == o.dtype && place == o.place;
}

namespace {
std::int64_t pieces(const Grid& grid, const Cuts& cuts) {
    std::int64_t n = 1;
    for (const Cut& c : cuts) n *= grid.extent(c.axis);
    return n;
}
}  // namespace

bool divides(const Grid& grid, const TensorType& t) {
    for (int d = 0; d < t.dims; ++d) {
        const auto i = static_cast<std::size_t>(d);
        std::int64_t n = t.shape[i];
        for (const Cut& c : t.place.cuts[i]) {
            const std::int64_t parts = std::int64_t{grid.extent(c.axis)};
            if (n % (c.layout == Layout::zigzag ? 2 * parts : parts)) return false;
            n /= parts;
        }
    }
    return true;
}

std::array<std::int64_t, max_dims> local_shape(const Grid& grid, const TensorType& t) {
    std::array<std::int64_t, max_dims> out = {1, 1, 1, 1};
    for (std::size_t d = 0; d < static_cast<std::size_t>(t.dims); ++d) out[d] = t.shape[d] / pieces(grid, t.place.cuts[d]);
    return out;
}

std::int64_t local_count(const Grid& grid, const TensorType& t) {
    const auto s = local_shape(grid, t);
    return s[0] * s[1] * s[2] * s[3];
}

std::int64_t local_bytes(const Grid& grid, const TensorType& t) { return local_count(grid, t) * bytes_of(t.dtype); }

Extents index_runs(const Grid& grid, const TensorType& t, int dim, const Coordinate& at) {
    const auto d = static_cast<std::size_t>(dim);
    Extents held = {{0, t.shape[d]}};
    for (const Cut& c : t.place.cuts[d]) {
        const std::int64_t n = grid.extent(c.axis), length = total(held);
        const std::int64_t r = ((at[c.axis] - c.turn) % n + n) % n;
        const std::int64_t pieces = c.layout == Layout::zigzag ? 2 * n : n, piece = length / pieces;
        Extents mine = portion(held, r * piece, piece);
        if (c.layout == Layout::zigzag)
            for (const Extent& e : portion(held, (pieces - 1 - r) * piece, piece)) append(mine, e);
        held = std::move(mine);
    }
    return held;
}

std::vector<std::int64_t> indices(const Grid& grid, const TensorType& t, int dim, const Coordinate& at) {
    std::vector<std::int64_t> out;
    for (const Extent& e : index_runs(grid, t, dim, at))
        for (std::int64_t i = e.offset; i < e.offset + e.count; ++i) out.push_back(i);
    return out;
}

std::int64_t first_index(const Grid& grid, const TensorType& t, int dim, const Coordinate& at) {
    const Extents runs = index_runs(grid, t, dim, at);
    require(runs.size() == 1, "a piece is not one run of indices");
    return runs[0].offset;
}

std::vector<int> pp_members(const Grid& grid, Holders holders) {
    const int last = grid.extent(Axis::pp) - 1;
    std::vector<int> members;
    for (int r = 0; r <= last; ++r)
        if (holders != Holders::ends || r == 0 || r == last) members.push_back(r);
    return members;
}

std::string text(const Placement& p, int dims) {
    std::string s = "[";
    for (int d = 0; d < dims; ++d) {
        if (d) s += ",";
        for (const Cut& c : p.cuts[static_cast<std::size_t>(d)])
            s += fmt::format("/{}{}{}", name_of(c.axis), c.layout == Layout::zigzag ? "~" : "", c.turn ? fmt::format("@{}", c.turn) : "");
    }
    s += "]";
    for (const Axis a : p.partial_sum.list()) s += fmt::format("+sum:{}", name_of(a));
    for (const Axis a : p.partial_max.list()) s += fmt::format("+max:{}", name_of(a));
    for (const Axis a : p.varies.list()) s += fmt::format("*{}", name_of(a));
    if (p.holders == Holders::all) s += "@all-pp";
    if (p.holders == Holders::ends) s += "@ends-pp";
    return s;
}

std::string text(const TensorType& t) {
    std::string place = text(t.place, t.dims), s = std::string(name_of(t.dtype)) + "[";
    std::size_t at = 1;
    for (int d = 0; d < t.dims; ++d) {
        if (d) s += ",";
        s += std::to_string(t.shape[static_cast<std::size_t>(d)]);
        const std::size_t end = place.find_first_of(",]", at);
        s += place.substr(at, end - at);
        at = end + 1;
    }
    if (t.dims == 0) at = place.find(']') + 1;
    return s + "]" + place.substr(at);
}

}  // namespace quadrille

// The type of a tensor: global shape, element type, placement on the grid, tier and book. The local shape follows.
//
// A placement lists, per dim, the axes that cut it, outermost first; then the axes over which the value is still Partial (a sum
// or a max of the ranks' pieces). Any axis in neither is Replicated. Axes of extent 1 never appear. The order inside a dim
// matters: the sequence is cut sp-then-tp (Megatron sequence parallel), heads tp-then-sp (Ulysses).
#pragma once
#include "grid/grid.hpp"
#include "ir/dtype.hpp"
#include "ir/extents.hpp"

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace quadrille {

enum class Layout : std::uint8_t { block, zigzag };  // zigzag: coordinate r of n holds pieces r and 2n-1-r (causal balance)

struct Cut {
    Axis axis = Axis::pp;
    Layout layout = Layout::block;
    std::int32_t turn = 0;  // ring: the piece held is that of the coordinate `turn` places before
    friend bool operator==(const Cut&, const Cut&) = default;
};

// The cuts of one dim, outermost first. At most four axes can cut a dim.
struct Cuts {
    std::array<Cut, 4> cut{};
    std::uint8_t count = 0;
    Cuts() = default;
    Cuts(std::initializer_list<Cut> list);
    // The axes of `axes` that have extent > 1, in enum order.
    static Cuts along(const Grid&, AxisSet axes, Layout = Layout::block);
    void push_back(Cut c);
    const Cut* begin() const { return cut.data(); }
    const Cut* end() const { return cut.data() + count; }
    bool empty() const { return count == 0; }
    AxisSet axes() const;
    Cuts then(const Cuts& inner) const;         // these, with `inner` inside
    bool starts_with(const Cuts& outer) const;
    friend bool operator==(const Cuts& a, const Cuts& b);
};

constexpr int max_dims = 4;

// Which pp coordinates hold a tensor: its own one alone (nearly all), all of them (the gradient norm), or the two ends (tied embeddings).
enum class Holders : std::uint8_t { own, all, ends };

struct Placement {
    std::array<Cuts, max_dims> cuts{};
    AxisSet partial_sum, partial_max;
    AxisSet varies;  // flat buffers: along these axes it is another buffer altogether, not a piece of one
    Holders holders = Holders::own;
    AxisSet cut_axes() const;
    AxisSet partial() const { return partial_sum | partial_max; }
    Placement whole() const;  // the same, Partial nowhere
    friend bool operator==(const Placement&, const Placement&) = default;
};

enum class Tier : std::uint8_t { device, host, nvme };
enum class Book : std::uint8_t { weights, gradients, optimizer, activations, buffers };
constexpr int tier_count = 3, book_count = 5;
std::string_view name_of(Tier);
std::string_view name_of(Book);

struct TensorType {
    std::array<std::int64_t, max_dims> shape{};
    int dims = 0;
    DType dtype = DType::f32;
    Placement place;
    Tier tier = Tier::device;
    Book book = Book::activations;
    std::int32_t covers = 0;  // running sums: which contributions are in it (Tables::covers); 0: it is no running sum

    TensorType() = default;
    TensorType(std::initializer_list<std::int64_t> global, DType, Placement = {}, Book = Book::activations);
    TensorType placed(const Placement&) const;
    TensorType in(Book) const;
    TensorType of(DType) const;
    // Same value in the same place: all but tier, book and covers.
    bool same_place(const TensorType&) const;
    friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::array<std::int64_t, max_dims> local_shape(const Grid&, const TensorType&);  // unused dims are 1
bool divides(const Grid&, const TensorType&);                                    // every cut dim splits evenly
std::int64_t local_count(const Grid&, const TensorType&);                        // elements on one rank
std::int64_t local_bytes(const Grid&, const TensorType&);

// Global indices along `dim` that the rank at `c` holds, in its local order; neighbouring runs are joined.
Extents index_runs(const Grid&, const TensorType&, int dim, const Coordinate& c);
// The same, one by one.
std::vector<std::int64_t> indices(const Grid&, const TensorType&, int dim, const Coordinate& c);
// The first of them; they must be one run.
std::int64_t first_index(const Grid&, const TensorType&, int dim, const Coordinate& c);

// The pp coordinates, ascending, that take part in a sum over pp whose result these hold. A type held by its own coordinate alone is no such
// result: for it, as for what stays on its rank, the answer is all of them.
std::vector<int> pp_members(const Grid&, Holders);

std::string text(const Placement&, int dims);  // "[/shard,/sp~,]+sum:tp"
std::string text(const TensorType&);           // "f32[8/shard,128/sp~/tp,64]+sum:tp"

}  // namespace quadrille

// The process grid: which rank stands where. Pure arithmetic, no MPI.
//
// The user's axes are dp, tp, pp and sp. Inside, dp is replica x shard (ranks of one shard group hold one copy of the training
// state), and tp is tp x tq, where tq > 1 only when there are fewer key-value heads than tensor-parallel ranks.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace quadrille {

enum class Axis : std::uint8_t { pp, replica, shard, sp, tp, tq };
constexpr int axis_count = 6;
constexpr std::array<Axis, axis_count> all_axes = {Axis::pp, Axis::replica, Axis::shard, Axis::sp, Axis::tp, Axis::tq};
std::string_view name_of(Axis);

// A set of axes. Iteration order is that of the enum, slowest-varying first.
struct AxisSet {
    std::uint8_t bits = 0;
    constexpr AxisSet() = default;
    constexpr AxisSet(Axis a) : bits(static_cast<std::uint8_t>(1u << static_cast<unsigned>(a))) {}
    constexpr AxisSet(std::initializer_list<Axis> axes) { for (const Axis a : axes) bits |= AxisSet(a).bits; }
    static constexpr AxisSet of_bits(unsigned b) { AxisSet s; s.bits = static_cast<std::uint8_t>(b); return s; }
    constexpr bool has(Axis a) const { return bits >> static_cast<unsigned>(a) & 1u; }
    constexpr bool empty() const { return bits == 0; }
    constexpr int count() const { return std::popcount(bits); }
    constexpr bool contains(AxisSet s) const { return (bits & s.bits) == s.bits; }
    friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return of_bits(a.bits | b.bits); }
    friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return of_bits(a.bits & b.bits); }
    friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return of_bits(a.bits & ~b.bits); }
    friend constexpr bool operator==(AxisSet, AxisSet) = default;
    constexpr AxisSet& operator|=(AxisSet s) { bits |= s.bits; return *this; }
    std::vector<Axis> list() const;
    std::string text() const;  // "dp+sp" in the user's words: replica and shard as dp unless only one of them is meant, tp and tq as tp
};

constexpr AxisSet tensor_axes = {Axis::tp, Axis::tq};
constexpr AxisSet data_axes = {Axis::replica, Axis::shard};
constexpr AxisSet zero_axes = {Axis::shard, Axis::sp};  // one copy of the training state is spread over these

struct Coordinate {
    std::array<int, axis_count> at{};
    int& operator[](Axis a) { return at[static_cast<std::size_t>(a)]; }
    int operator[](Axis a) const { return at[static_cast<std::size_t>(a)]; }
    friend bool operator==(const Coordinate&, const Coordinate&) = default;
};

class Grid {
  public:
    Grid() = default;
    // Extents by axis, and the axes fastest-varying first. Throws logic_error unless `fastest_first` names every axis once.
    Grid(std::array<int, axis_count> extent, std::array<Axis, axis_count> fastest_first);
    // The grid of the input file: dp = replica x shard, tp = tp x tq; `order` holds dp, tp, pp, sp, fastest-varying first.
    static Grid of_user_axes(int dp, int tp, int pp, int sp, int shard, int tq, const std::vector<std::string>& order);

    int extent(Axis a) const { return extent_[static_cast<std::size_t>(a)]; }
    std::int64_t ranks() const { return size({Axis::pp, Axis::replica, Axis::shard, Axis::sp, Axis::tp, Axis::tq}); }
    std::int64_t size(AxisSet axes) const;      // product of the extents
    AxisSet real(AxisSet axes) const;           // those with extent > 1
    Coordinate coordinate(std::int64_t rank) const;
    std::int64_t rank(const Coordinate&) const;
    // The ranks that differ from `from` only along `axes`, ordered by their coordinates on them, slowest axis (in enum order) first.
    // Along pp only the coordinates in `pp_members` are taken, or all if that is empty.
    std::vector<std::int64_t> group(const Coordinate& from, AxisSet axes, const std::vector<int>& pp_members = {}) const;
    // Position of `c` in its own group along `axes`.
    std::int64_t position(const Coordinate& c, AxisSet axes) const;

  private:
    std::array<int, axis_count> extent_{1, 1, 1, 1, 1, 1};
    std::array<Axis, axis_count> order_{Axis::tq, Axis::tp, Axis::sp, Axis::shard, Axis::replica, Axis::pp};
};

// The axes as the user names them: one of extent 1 is taken in where the word (dp, tp) means it too.
AxisSet named_axes(const Grid&, AxisSet);
// Their text, as the record has it ("dp", "dp+sp").
std::string wire_name(const Grid&, AxisSet);

}  // namespace quadrille

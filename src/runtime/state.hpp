// Where the training state lies in a rank's arena, and its first values.
#pragma once
#include "ir/program.hpp"
#include "runtime/arena.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace quadrille {

// Fills weights (and fp32 masters) of a training program: normal and uniform deviates are a function of (seed, parameter, global
// element), padding is zero, so every grid starts from the same bits; moments and residuals are zero. Not collective.
void initialize(const Program& training, const Coordinate& at, Arena& arena, std::uint64_t seed, int threads);

// `count` elements of a parameter, from `element` on in its true shape and row-major, that stand one after the other: at `data`, which may be memory
// that only the device reaches, or from byte `place` of the nvme tier's file on.
struct Piece {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t element = 0, count = 0;
    std::int64_t place = -1;
    bool adds = false;  // values that are put there are added to what is there
    bool far = false;   // only the device reaches it
};

// Whether such state is a term of a sum that has yet to be made: each holder has one of its own, and what it means is the sum of all.
constexpr bool is_term(StateKind what) { return what == StateKind::residual || what == StateKind::stale; }

// What a rank holds of a parameter, in ascending order of its elements. So many ranks hold the same, and this one is number `copy` of them. Of terms,
// elements are those of an array [terms, shape...], in which the rank has a row: number `term` of `terms`.
struct Holding {
    std::vector<Piece> pieces;
    std::int64_t copies = 1, copy = 0;
    std::int64_t terms = 0, term = 0;
};

// What the rank at `at` holds of the training state. Program and arena must outlive it. Not collective.
class Holdings {
  public:
    Holdings(const Program& training, const Coordinate& at, const Arena& arena);

    const Program& program() const { return program_; }
    // Of program().parameters[parameter]: nothing where another pp coordinate has it, or where the program has no such state. A master is the weight
    // itself in fp32 runs, and where the parameter is frozen.
    Holding of(int parameter, StateKind what) const;
    // Whether the program has such state of it here, the weight as a master not counted.
    bool has(int parameter, StateKind what) const;
    // Of state that is_term: how many ranks have a term of their own; 0 where there is no such state here.
    std::int64_t terms(int parameter, StateKind what) const;

  private:
    TensorId state(const Program::At& at, StateKind what) const;  // -1: none
    AxisSet spread(TensorId) const;                               // along these, ranks have other terms
    Holding holding(const Program::At& at, TensorId home) const;

    const Program& program_;
    const Coordinate at_;
    const Arena& arena_;
    std::vector<std::optional<Program::At>> places_;  // by parameter
    std::map<std::pair<StateKind, std::int32_t>, TensorId> state_;
};

// Memory of the device tier that holds nothing between two steps: whoever works there then may use it. Empty where only the device reaches it.
std::span<std::byte> free_between_steps(const Program& training, const Arena& arena);

// The pieces alone, all of them in memory. A gradient is what the last step left in its buffer: valid where nothing later in the step used that
// memory. Tests put parameters together from these. Not collective.
std::vector<Piece> pieces_of(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what);

}  // namespace quadrille

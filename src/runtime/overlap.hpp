// How much of a step's moves ran behind its arithmetic, and what that cost the arithmetic: told once the step is over, from the times that its ops
// and moves have left. Pure.
#pragma once
#include "ir/program.hpp"

#include <map>
#include <span>
#include <vector>

namespace quadrille {

struct Interval {
    double begin = 0, end = 0;  // seconds
    bool operator==(const Interval&) const = default;
};

// Their union: sorted, apart from each other, without empty ones.
std::vector<Interval> united(std::vector<Interval>);
double total(std::span<const Interval>);

// Ops that do the same work on other data: another microbatch, another layer. Numbered as they come, from 0.
class LikeOps {
  public:
    // Of `op` of this program, always the same one.
    std::int32_t number(const Program&, const Op& op);
    std::size_t count() const { return numbers_.size(); }

  private:
    std::int32_t kind_of(const TensorType&, TypeId);  // types that differ in nothing but what a running sum covers are one

    std::vector<TensorType> types_;
    std::map<TypeId, std::int32_t> type_numbers_;
    std::map<std::vector<std::int32_t>, std::int32_t> numbers_;
};

// One op of the compute queue as it ran.
struct Stretch {
    std::int32_t like = 0;  // LikeOps::number
    Interval time;
};

// Arithmetic while moves were in flight, and how long the same work takes with none in flight. Their ratio is by how much moves slow it down.
struct Beside {
    double seconds = 0, alone = 0;
};

// `ran` in order of time; `moves` united; `likes`: LikeOps::count. What an op takes alone is the mean over the like ops of the step that ran with no
// move in flight; ops that have none are left out of both sums.
Beside beside(std::span<const Stretch> ran, std::span<const Interval> moves, std::size_t likes);

}  // namespace quadrille

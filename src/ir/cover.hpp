// Which contributions a running sum holds, so that nothing is summed twice and nothing is left out. Backward passes of a chunk ascend in
// microbatches, so a set is a few runs, however many it holds. Pure.
#pragma once
#include <compare>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace quadrille {

// An op that breaks its typing rule.
struct TypingError : std::runtime_error { using std::runtime_error::runtime_error; };

// One contribution to a running sum: a microbatch's use of a parameter, or a turn of a ring.
struct Contribution {
    std::int32_t microbatch = 0, use = 0;
};

class Cover {
  public:
    // One use's contributions of microbatches first, first + 1, ... first + count - 1.
    struct Run {
        std::int32_t use = 0, first = 0, count = 0;
        friend auto operator<=>(const Run&, const Run&) = default;
    };

    Cover() = default;  // of nothing
    Cover(Contribution c) : runs_{{c.use, c.microbatch, 1}} {}
    // Each of `uses` uses of each of `microbatches` microbatches, from `first` on.
    static Cover complete(int microbatches, int uses, int first = 0);

    std::int64_t size() const;
    int uses() const { return runs_.empty() ? 0 : runs_.back().use + 1; }
    const std::vector<Run>& runs() const { return runs_; }  // ascending, as long as they can be
    friend bool operator==(const Cover&, const Cover&) = default;

    friend Cover joined(const Cover& a, const Cover& b);

  private:
    std::vector<Run> runs_;
};

// Both together. Throws TypingError where they overlap.
Cover joined(const Cover& a, const Cover& b);

}  // namespace quadrille

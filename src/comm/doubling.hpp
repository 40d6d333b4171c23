// An all-reduce of very little carried by recursive doubling: in step h a member exchanges all it has with the one whose number differs
// in bit h, so all have the sum after log2 n messages. Members beyond the largest power of two give theirs to one below first, and get
// the result from it. The order of the sum is the tree's, on the group's members alone: whatever else serves the group, scalars are
// summed so.
#pragma once
#include <array>

#include "comm/move_carrier.hpp"

namespace quadrille {

class Doubling final : public MoveCarrier {
  public:
    static constexpr std::int64_t most_bytes = 4096, most_scalars = 8;  // of a move that it serves
    static constexpr std::int64_t staging_bytes = 2 * most_bytes;

    bool advance() override;
    bool finished() const override { return step_ == steps_; }

  private:
    void begin() override;
    struct Step {
        int peer = 0;
        bool sends = false, receives = false;
        bool replaces = false;  // what is received is the result
    };

    Step step(int i) const;
    void post();
    void take(const Step& step);
    template <class F>
    void each_segment(F f) const;

    int power_ = 1, hops_ = 0;  // the largest power of two that is no more than the members, and its logarithm
    int steps_ = 0, step_ = 0;
    std::int64_t count_ = 0;     // elements of all segments
    std::byte* sum_ = nullptr;   // of what this member has so far
    std::byte* other_ = nullptr;  // what comes
    std::array<MPI_Request, 2> requests_;
};

}  // namespace quadrille

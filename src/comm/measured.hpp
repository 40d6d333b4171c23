// Times of collectives that were measured on this machine, and which of two algorithms of the same bits they favour. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/algorithm.hpp"

namespace quadrille {

struct MeasuredTime {
    MoveKind kind = MoveKind::all_reduce;
    Algorithm algorithm = Algorithm::ring;
    int ranks = 0;
    std::int64_t bytes = 0;  // of the whole buffer of one rank
    double seconds = 0;
};

class MeasuredTimes {
  public:
    MeasuredTimes() = default;
    // Pairs of ring and shared with equal kind, ranks and bytes count, the rest does not.
    explicit MeasuredTimes(const std::vector<MeasuredTime>& times);

    // The one that was faster at the nearest number of ranks and, of those, the nearest size (in ratio). Where nothing of the kind was measured:
    // shared, but ring for all but small all-gathers of two. A function of what all members know alike.
    Algorithm fastest(MoveKind kind, int members, std::int64_t bytes) const;

  private:
    struct Pair {
        MoveKind kind;
        int ranks;
        std::int64_t bytes;
        bool shared;
    };
    std::vector<Pair> pairs_;
};

}  // namespace quadrille

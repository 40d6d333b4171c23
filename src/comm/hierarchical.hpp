// A collective carried in two levels: through shared memory inside each node, by the ring between members with the same place on
// their nodes. So a byte crosses between nodes once per node, not once per member.
//
// With member (a, b) the b-th of node a: reducing, (a, b) first sums, over its node, the slices of all members (·, b); then those
// sums go round the ring of members (·, b), each ending at its owner. Gathering goes the other way. An element is thus summed inside
// the nodes first, in ring order ending at its owner's b, then over the nodes, ending at its owner's a: by the owner alone.
//
// An all-reduce and an all-gather use the output buffer between the levels. A reduce-scatter has no room there: it goes in rounds, a
// portion of every slice each, and the node's sums stand in staging meanwhile. Its rounds follow one another, levels and all, so between nodes a
// reduce-scatter waits where an all-reduce of the same bytes streams.
#pragma once
#include "comm/messages.hpp"
#include "comm/node_grid.hpp"
#include "comm/shared.hpp"

namespace quadrille {

// The levels of a group, as Channel tells them.
struct Levels {
    NodeGrid grid;
    MPI_Comm within = MPI_COMM_NULL, across = MPI_COMM_NULL;
};

class Hierarchical final : public MoveCarrier {
  public:
    static constexpr int sum_slots = 4;  // of segment_bytes each, behind what messages pass through: a node's sums of one round

    bool advance() override;
    bool finished() const override { return phase_ == phases_; }

  private:
    void begin() override;
    enum class Phase { reduce_within, reduce_across, gather_across, gather_within };

    Phase phase(std::int64_t i) const;
    void begin_phase();
    void begin_level(MoveCarrier& carrier, MoveKind kind, MPI_Comm comm, int members, int me);
    void add_slice(SliceTable& table, const SliceTable& from, int owner) const;
    void add_sums(SliceTable& table, int node) const;
    Portion part(int owner) const;
    const NodeGrid& grid() const { return channel_->levels->grid; }
    bool scatters() const { return move().kind == MoveKind::reduce_scatter; }

    std::int64_t portion_ = 0;  // of a slice, in elements: a round's in a reduce_scatter, else all
    std::byte* sums_ = nullptr;
    std::int64_t phases_ = 0, phase_ = 0;

    Move level_move_;
    Operands level_;
    Channel level_channel_;
    MoveTimes level_record_;
    Shared within_;
    Messages across_;
    MoveCarrier* carrier_ = nullptr;
};

}  // namespace quadrille

#include "comm/hierarchical.hpp"

#include <algorithm>

#include "comm/world.hpp"

namespace quadrille {

void Hierarchical::begin() {
    record_->sent_bytes = o_->formula_bytes();
    portion_ = o_->longest();
    std::int64_t rounds = portion_ == 0 ? 0 : 1;
    if (scatters() && portion_ > 0) {
        const std::int64_t bytes = sum_slots * channel_->segment_bytes;
        const auto all = static_cast<std::int64_t>(channel_->staging.size());
        sums_ = channel_->staging.data() + (all - bytes);
        portion_ = std::min(portion_, bytes / grid().nodes / o_->element_bytes);
        require(portion_ > 0, "hierarchical: the staging is too small for so many nodes");
        rounds = ceil_div(o_->in.longest(), portion_);
    }
    phases_ = rounds * (move().kind == MoveKind::all_reduce ? 3 : 2);
    phase_ = 0;
    if (phases_ > 0) begin_phase();
}

Hierarchical::Phase Hierarchical::phase(std::int64_t i) const {
    switch (move().kind) {
        case MoveKind::all_gather: return i == 0 ? Phase::gather_across : Phase::gather_within;
        case MoveKind::reduce_scatter: return i % 2 == 0 ? Phase::reduce_within : Phase::reduce_across;
        default: return i == 0 ? Phase::reduce_within : i == 1 ? Phase::reduce_across : Phase::gather_within;
    }
}

bool Hierarchical::advance() {
    if (finished()) return false;
    bool moved = carrier_->advance();
    while (carrier_->finished() && channel_->shared->drained()) {  // messages pass through the memory that was shared before
        moved = true;
        if (++phase_ == phases_) break;
        begin_phase();
    }
    return moved;
}

Portion Hierarchical::part(int owner) const {
    const SliceTable& whole = move().kind == MoveKind::all_gather ? o_->out : o_->in;
    const std::int64_t first = scatters() ? phase_ / 2 * portion_ : 0;
    return {owner, first, std::clamp<std::int64_t>(whole.length(owner) - first, 0, portion_)};
}

// The round's part of the slice of this owner, as it stands in `from`.
void Hierarchical::add_slice(SliceTable& table, const SliceTable& from, int owner) const {
    const Portion p = part(owner);
    if (p.count > 0) from.each_run(p, [&](std::byte* data, std::int64_t, std::int64_t count) { table.add(data, count); });
}

// Where this node's sum of the slice of (node, local) stands between the levels.
void Hierarchical::add_sums(SliceTable& table, int node) const {
    const int owner = grid().member(node, grid().local);
    if (!scatters()) return add_slice(table, o_->out, owner);
    table.add(sums_ + node * portion_ * o_->element_bytes, part(owner).count);
}

void Hierarchical::begin_phase() {
    const NodeGrid& g = grid();
    SliceTable &in = level_.in, &out = level_.out;
    in.clear(o_->element_bytes);
    out.clear(o_->element_bytes);
    const Phase step = phase(phase_);
    if (step == Phase::reduce_within || step == Phase::gather_within) {
        const bool reduces = step == Phase::reduce_within;
        for (int b = 0; b < g.per_node; ++b) {
            in.begin_slice();
            out.begin_slice();
            const bool mine = b == g.local;
            for (int a = 0; a < g.nodes; ++a) {
                if (reduces) add_slice(in, o_->in, g.member(a, b));
                else add_slice(out, o_->out, g.member(a, b));
                if (mine) add_sums(reduces ? out : in, a);
            }
        }
        return begin_level(within_, reduces ? MoveKind::reduce_scatter : MoveKind::all_gather, channel_->levels->within, g.per_node, g.local);
    }
    const bool sums_all = move().kind == MoveKind::all_reduce;
    for (int a = 0; a < g.nodes; ++a) {
        in.begin_slice();
        out.begin_slice();
        const bool mine = a == g.node;
        if (step == Phase::gather_across) {
            if (mine) add_slice(in, o_->in, o_->me);
            add_slice(out, o_->out, g.member(a, g.local));
        } else {
            add_sums(in, a);
            if (sums_all) add_sums(out, a);
            else if (mine) add_slice(out, o_->out, o_->me);
        }
    }
    const MoveKind kind = step == Phase::gather_across ? MoveKind::all_gather : move().kind;
    begin_level(across_, kind, channel_->levels->across, g.nodes, g.node);
}

void Hierarchical::begin_level(MoveCarrier& carrier, MoveKind kind, MPI_Comm comm, int members, int me) {
    level_move_.kind = kind;
    level_move_.op = move().op;
    level_move_.dtype = move().dtype;
    level_.move = &level_move_;
    level_.members = members;
    level_.me = me;
    level_.element_bytes = o_->element_bytes;
    level_.in_place = kind == MoveKind::all_reduce;
    level_channel_ = *channel_;
    level_channel_.comm = comm;
    level_channel_.members = members;
    level_channel_.me = me;
    carrier_ = &carrier;
    carrier.enter(level_, level_channel_, level_record_);
}

}  // namespace quadrille

#include "compile/lay_out.hpp"

#include "base/rounding.hpp"
#include "compile/free_space.hpp"
#include "ir/table.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace quadrille {
namespace {

std::int64_t sum(const std::array<std::int64_t, book_count>& books) { return std::accumulate(books.begin(), books.end(), std::int64_t{0}); }
std::int64_t aligned(const Buffer& b) {
    return aligned_up(b.bytes, b.tier == Tier::device ? buffer_alignment : disk_alignment);
}

// One way to give places: buffers in order of birth, or backwards in time in order of death; long-lived ones by `fit`, those that live for
// fewer than `brief` ops at the top.
struct Way {
    bool backwards;
    Fit fit;
    std::int32_t brief;
};
// No way is best for all programs: on grids of GPT-2 124M, Llama-2 7B and Llama-3 405B each loses over 3 % of some. So several are tried, in
// this order, until one loses little; large programs are worth fewer tries.
constexpr std::array<Way, 7> ways = {{{false, Fit::lowest, 8}, {true, Fit::best, 0}, {false, Fit::best, 2}, {true, Fit::lowest, 2},
                                      {true, Fit::lowest, 8}, {false, Fit::lowest, 512}, {false, Fit::best, 0}}};
constexpr std::int64_t little = 200;             // one part of so many of the arena
constexpr std::size_t most_placements = 400000;  // of buffers, over all tries

class LayOut {
  public:
    explicit LayOut(Program& p) : p_(p), end_(static_cast<std::int32_t>(p.ops.size())) {}

    void run(const Workspace& workspace) {
        for (Buffer& b : p_.buffers) b.bytes = 0, b.offset = b.first = b.last = -1;
        find_lifetimes(workspace);
        for (Buffer& b : p_.buffers)
            if (b.persistent) b.first = 0, b.last = end_;
        for (int tier = 0; tier < tier_count; ++tier) place(static_cast<Tier>(tier));
        p_.staging = {};
        p_.snapshot = workspace.snapshot ? snapshot_bytes() : 0;
        reserve(Tier::host, p_.snapshot, disk_alignment);
        if (workspace.of_group > 0)
            stage(message_tier(p_), workspace.of_group * static_cast<std::int64_t>(collective_groups(p_).size()), buffer_alignment);
        if (p_.peaks[static_cast<std::size_t>(Tier::nvme)].arena > 0) stage(Tier::host, workspace.of_disk, disk_alignment);
    }

    // At least what any rank of this coordinate writes of its state, in fp32: the holders of the same share it, each parameter's part rounded up.
    std::int64_t snapshot_bytes() const {
        std::int64_t values = 0;
        std::map<std::pair<StateKind, std::size_t>, TensorId> state;
        for (const TensorId t : p_.initial_state()) state.try_emplace({p_.buffer(t).state, static_cast<std::size_t>(p_.buffer(t).unit)}, t);
        for (std::size_t u = 0; u < p_.flats.size(); ++u) {
            const Flat& flat = p_.flats[u];
            AxisSet cut;
            for (const FlatSegment& s : flat.segments)
                cut |= p_.tables->type(p_.parameters[static_cast<std::size_t>(s.parameter)].type).place.cut_axes();
            for (const StateKind what : {StateKind::master, StateKind::m, StateKind::v, StateKind::residual, StateKind::stale}) {
                auto found = state.find({what, u});
                if (found == state.end() && what == StateKind::master) found = state.find({StateKind::weight, u});
                if (found == state.end()) continue;
                const TensorId t = found->second;
                const Placement& place = p_.type(t).place;  // of a sum, whose terms are kept apart, too
                const AxisSet alike = (data_axes | tensor_axes | AxisSet(Axis::sp)) - cut - place.cut_axes() - place.partial_sum -
                                      p_.tensor(t).slice_axes;
                const bool ends = flat.tied && p_.grid().extent(Axis::pp) > 1 && !place.partial_sum.has(Axis::pp);
                const std::int64_t holders = p_.grid().size(alike) * (ends ? 2 : 1);
                values += std::min(p_.tables->count(p_.tensor(t).type), flat.end) / holders + 1 + std::ssize(flat.segments);
            }
        }
        return values * bytes_of(DType::f32);
    }

  private:
    void stage(Tier tier, std::int64_t bytes, std::int64_t alignment) {
        reserve(tier, bytes, alignment);
        p_.staging[static_cast<std::size_t>(tier)] += bytes;
    }

    // So many bytes behind the buffers of a tier, beginning at a multiple of this.
    void reserve(Tier tier, std::int64_t bytes, std::int64_t alignment) {
        if (bytes == 0) return;
        TierPeak& peak = p_.peaks[static_cast<std::size_t>(tier)];
        const std::int64_t begin = aligned_up(peak.arena, alignment);
        peak.packing += begin - peak.arena;
        peak.books[static_cast<std::size_t>(Book::buffers)] += bytes;
        peak.arena = begin + bytes;
    }

    Buffer& buffer(BufferId b) { return p_.buffers[static_cast<std::size_t>(b)]; }

    void find_lifetimes(const Workspace& workspace) {
        const NameId workspace_name = p_.tables->intern("workspace");
        for (std::int32_t i = 0; i < end_; ++i) {
            Op& op = p_.ops[static_cast<std::size_t>(i)];
            const std::int32_t last = std::max(i, op.until < 0 ? i : op.until - 1);
            for (std::uint32_t k = op.first; k < op.first + op.inputs + op.outputs; ++k) touch(p_.operands[k], i, last);
            op.workspace = -1;
            const std::int64_t bytes = workspace.of_op ? known_workspace(workspace, op) : 0;
            if (bytes == 0) continue;
            Buffer scratch;
            scratch.name = workspace_name;
            scratch.book = Book::buffers;
            scratch.bytes = bytes;
            scratch.first = scratch.last = i;
            op.workspace = static_cast<BufferId>(p_.buffers.size());
            p_.buffers.push_back(scratch);
        }
        for (const Tensor& t : p_.tensors)
            if (buffer(t.buffer).persistent) extend(t);
    }

    // Microbatches repeat: an op like an earlier one needs what that one needs.
    std::int64_t known_workspace(const Workspace& workspace, const Op& op) {
        std::vector<std::int32_t> like = {static_cast<std::int32_t>(op.kind), op.adds, op.attributes};
        for (const auto operands : {p_.inputs(op), p_.outputs(op)})
            for (const TensorId t : operands) like.push_back(p_.tensor(t).type);
        const auto [it, fresh] = workspaces_.try_emplace(std::move(like), 0);
        if (fresh) it->second = workspace.of_op(p_, op);
        return it->second;
    }

    void extend(const Tensor& t) {
        const std::int64_t elements = t.offset + p_.tables->count(t.type) * p_.grid().size(t.slice_axes);
        buffer(t.buffer).bytes = std::max(buffer(t.buffer).bytes, elements * bytes_of(p_.tables->type(t.type).dtype));
    }

    void touch(TensorId id, std::int32_t i, std::int32_t last) {
        const Tensor& t = p_.tensors[static_cast<std::size_t>(id)];
        Buffer& b = buffer(t.buffer);
        if (b.first < 0) b.first = i;
        b.last = std::max(b.last, last);
        extend(t);
    }

    // By birth, the larger first; backwards: by death.
    std::int32_t birth(const Buffer& b, bool backwards) const { return backwards ? end_ - b.last : b.first; }
    std::int32_t death(const Buffer& b, bool backwards) const { return backwards ? end_ - b.first : b.last; }
    std::vector<BufferId> in_order(std::vector<BufferId> ids, bool backwards) {
        std::stable_sort(ids.begin(), ids.end(), [&](BufferId x, BufferId y) {
            const Buffer &a = buffer(x), &b = buffer(y);
            const std::int32_t i = birth(a, backwards), j = birth(b, backwards);
            return i != j ? i < j : a.bytes > b.bytes;
        });
        return ids;
    }

    // The books at the moment of most bytes; returned, the most that whole grains take: no layout goes below.
    std::int64_t find_peak(const std::vector<BufferId>& ids, TierPeak& peak) {
        struct Live { std::array<std::int64_t, book_count> books{}; std::int64_t grains = 0; };
        std::vector<Live> change(static_cast<std::size_t>(end_) + 2);
        for (const BufferId id : ids) {
            const Buffer& b = buffer(id);
            for (const int sign : {1, -1}) {
                Live& at = change[static_cast<std::size_t>(sign > 0 ? b.first : b.last + 1)];
                at.books[static_cast<std::size_t>(b.book)] += sign * b.bytes;
                at.grains += sign * aligned(b);
            }
        }
        Live live;
        std::int64_t most = -1, most_grains = 0;
        for (std::int32_t i = 0; i <= end_; ++i) {
            for (std::size_t k = 0; k < book_count; ++k) live.books[k] += change[static_cast<std::size_t>(i)].books[k];
            most_grains = std::max(most_grains, live.grains += change[static_cast<std::size_t>(i)].grains);
            const std::int64_t total = sum(live.books);
            if (total <= most) continue;
            most = total;
            peak.books = live.books;
            peak.op = i;
        }
        return most_grains;
    }

    // Offsets of the buffers in their order, and where the last one ends. The state lies below; `floor` bytes are needed at least.
    std::int64_t try_way(const Way& way, const std::vector<BufferId>& order, std::int64_t state, std::int64_t floor,
                         std::vector<std::int64_t>& offsets) {
        FreeSpace space(state);
        if (way.brief > 0) space.open(floor);
        std::int64_t end = state;
        std::multimap<std::int32_t, BufferId> dying;  // by last op
        for (const BufferId id : order) {
            const Buffer& b = buffer(id);
            for (auto it = dying.begin(); it != dying.end() && it->first < birth(b, way.backwards); it = dying.erase(it))
                space.give(offsets[static_cast<std::size_t>(it->second)], aligned(buffer(it->second)));
            const std::int64_t offset = space.take(aligned(b), b.last - b.first < way.brief ? Fit::highest : way.fit);
            offsets[static_cast<std::size_t>(id)] = offset;
            end = std::max(end, offset + aligned(b));
            dying.emplace(death(b, way.backwards), id);
        }
        return end;
    }

    void place(Tier tier) {
        std::vector<BufferId> all, passing;
        std::int64_t state = 0;
        for (std::size_t i = 0; i < p_.buffers.size(); ++i) {
            Buffer& b = p_.buffers[i];
            if (b.tier != tier || b.first < 0) continue;
            all.push_back(static_cast<BufferId>(i));
            if (!b.persistent) {
                passing.push_back(static_cast<BufferId>(i));
                continue;
            }
            b.offset = state;
            state += aligned(b);
        }
        TierPeak peak;
        const std::int64_t floor = find_peak(all, peak);
        std::array<std::vector<BufferId>, 2> orders;  // forwards, backwards
        std::vector<std::int64_t> offsets(p_.buffers.size()), least_offsets;
        peak.arena = -1;
        for (std::size_t k = 0, placed = 0; k < ways.size(); ++k, placed += passing.size()) {
            if (k > 0 && ((peak.arena - floor) * little <= peak.arena || placed + passing.size() > most_placements)) break;
            std::vector<BufferId>& order = orders[ways[k].backwards];
            if (order.empty()) order = in_order(passing, ways[k].backwards);
            const std::int64_t arena = try_way(ways[k], order, state, floor, offsets);
            if (peak.arena >= 0 && arena >= peak.arena) continue;
            peak.arena = arena;
            least_offsets = offsets;
        }
        for (const BufferId id : passing) buffer(id).offset = least_offsets[static_cast<std::size_t>(id)];
        peak.packing = peak.arena - sum(peak.books);
        p_.peaks[static_cast<std::size_t>(tier)] = peak;
    }

    Program& p_;
    const std::int32_t end_;
    std::map<std::vector<std::int32_t>, std::int64_t> workspaces_;
};

}  // namespace

void lay_out(Program& p, const Workspace& workspace) { LayOut(p).run(workspace); }

}  // namespace quadrille

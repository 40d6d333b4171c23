#include "compile/lay_out.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace quadrille {
namespace {

constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment; }

// The free extents of an arena that grows at its end.
class FreeSpace {
  public:
    std::int64_t take(std::int64_t bytes) {
        const auto it = by_size_.lower_bound({bytes, 0});
        if (it != by_size_.end()) {
            const auto [size, offset] = *it;
            remove(offset, size);
            if (size > bytes) insert(offset + bytes, size - bytes);
            return offset;
        }
        std::int64_t offset = end_;
        if (!by_offset_.empty()) {  // the last free extent may reach the end: only the rest is new
            const auto [last, size] = *by_offset_.rbegin();
            if (last + size == end_) {
                offset = last;
                remove(last, size);
            }
        }
        end_ = offset + bytes;
        return offset;
    }

    void give(std::int64_t offset, std::int64_t bytes) {
        auto next = by_offset_.lower_bound(offset);
        if (next != by_offset_.end() && next->first == offset + bytes) {
            bytes += next->second;
            remove(next->first, next->second);
            next = by_offset_.lower_bound(offset);
        }
        if (next != by_offset_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == offset) {
                offset = before->first;
                bytes += before->second;
                remove(before->first, before->second);
            }
        }
        insert(offset, bytes);
    }

    std::int64_t end() const { return end_; }

  private:
    void insert(std::int64_t offset, std::int64_t bytes) { by_offset_[offset] = bytes; by_size_.insert({bytes, offset}); }
    void remove(std::int64_t offset, std::int64_t bytes) { by_offset_.erase(offset); by_size_.erase({bytes, offset}); }
    std::map<std::int64_t, std::int64_t> by_offset_;
    std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
    std::int64_t end_ = 0;
};

class LayOut {
  public:
    explicit LayOut(Program& p) : p_(p), end_(static_cast<std::int32_t>(p.ops.size())) {}

    void run(const Workspace& workspace) {
        for (Buffer& b : p_.buffers) b.bytes = 0, b.offset = b.first = b.last = -1;
        find_lifetimes(workspace);
        for (Buffer& b : p_.buffers)
            if (b.persistent) b.first = 0, b.last = end_;
        for (int tier = 0; tier < tier_count; ++tier) place(static_cast<Tier>(tier));
    }

  private:
    Buffer& buffer(BufferId b) { return p_.buffers[static_cast<std::size_t>(b)]; }

    void find_lifetimes(const Workspace& workspace) {
        for (std::int32_t i = 0; i < end_; ++i) {
            Op& op = p_.ops[static_cast<std::size_t>(i)];
            const std::int32_t last = std::max(i, op.until < 0 ? i : op.until - 1);
            for (std::int32_t k = op.first; k < op.first + op.inputs + op.outputs; ++k) touch(p_.operands[static_cast<std::size_t>(k)], i, last);
            op.workspace = -1;
            const std::int64_t bytes = workspace ? workspace(p_, op) : 0;
            if (bytes == 0) continue;
            Buffer scratch;
            scratch.name = p_.tables->intern("workspace");
            scratch.book = Book::buffers;
            scratch.bytes = bytes;
            scratch.first = scratch.last = i;
            op.workspace = static_cast<BufferId>(p_.buffers.size());
            p_.buffers.push_back(scratch);
        }
        for (const Tensor& t : p_.tensors)
            if (buffer(t.buffer).persistent) extend(t);
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

    void place(Tier tier) {
        TierPeak peak;
        FreeSpace space;
        std::vector<BufferId> order;
        for (std::size_t i = 0; i < p_.buffers.size(); ++i)
            if (p_.buffers[i].tier == tier && p_.buffers[i].first >= 0) order.push_back(static_cast<BufferId>(i));
        std::stable_sort(order.begin(), order.end(), [this](BufferId x, BufferId y) {
            const Buffer &a = buffer(x), &b = buffer(y);
            if (a.persistent != b.persistent) return a.persistent;
            if (a.persistent) return false;
            return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
        });
        std::multimap<std::int32_t, BufferId> dying;  // by last op
        std::array<std::int64_t, book_count> live{};
        std::int64_t total = 0, most = -1;
        for (const BufferId id : order) {
            Buffer& b = buffer(id);
            for (auto it = dying.begin(); it != dying.end() && it->first < b.first; it = dying.erase(it)) {
                const Buffer& dead = buffer(it->second);
                space.give(dead.offset, aligned(dead.bytes));
                live[static_cast<std::size_t>(dead.book)] -= dead.bytes;
                total -= dead.bytes;
            }
            b.offset = space.take(aligned(b.bytes));
            dying.emplace(b.last, id);
            live[static_cast<std::size_t>(b.book)] += b.bytes;
            total += b.bytes;
            if (total > most) {
                most = total;
                peak.books = live;
                peak.op = b.first;
            }
        }
        peak.arena = space.end();
        peak.packing = peak.arena - std::max<std::int64_t>(most, 0);
        p_.peaks[static_cast<std::size_t>(tier)] = peak;
    }

    Program& p_;
    const std::int32_t end_;
};

}  // namespace

void lay_out(Program& p, const Workspace& workspace) { LayOut(p).run(workspace); }

}  // namespace quadrille

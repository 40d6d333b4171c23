// Shadow memory: walking the program, whose bytes are these, and which tensors are still intact? A write ends every tensor whose bytes it touches.
#include "compile/verify.hpp"

#include "ir/table.hpp"

#include <map>

namespace quadrille {
namespace {

struct Span { std::int64_t begin = 0, end = 0; };
bool meet(Span a, Span b) { return a.begin < b.end && b.begin < a.end; }

class Memory {
  public:
    Memory(const Program& p, Tier tier, Faults& faults) : p_(p), tier_(tier), faults_(faults), intact_(p.tensors.size(), false), tensors_of_(p.buffers.size()), written_over_(p.buffers.size(), -1) {}

    void run() {
        for (std::size_t b = 0; b < p_.buffers.size(); ++b)
            if (p_.buffers[b].persistent && here(static_cast<BufferId>(b))) own({p_.buffers[b].offset, p_.buffers[b].offset + p_.buffers[b].bytes}, static_cast<BufferId>(b));
        std::vector<bool> made(p_.tensors.size(), false);
        for (const Op& op : p_.ops)
            for (const TensorId t : p_.outputs(op)) made[static_cast<std::size_t>(t)] = true;
        for (std::size_t t = 0; t < p_.tensors.size(); ++t)
            if (!made[t] && p_.buffers[static_cast<std::size_t>(p_.tensors[t].buffer)].persistent) keep(static_cast<TensorId>(t));
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) step(p_.ops[static_cast<std::size_t>(op_)]);
        check_state();
    }

  private:
    void say(std::string reason) { faults_.push_back({p_.coordinate, op_, std::move(reason)}); }
    bool here(BufferId b) const { return p_.buffers[static_cast<std::size_t>(b)].tier == tier_ && p_.buffers[static_cast<std::size_t>(b)].offset >= 0; }

    // Every operand has a place inside the arena.
    void check_extent(const Op& op) {
        const std::int64_t arena = p_.peaks[static_cast<std::size_t>(tier_)].arena;
        for (std::int32_t k = op.first; k < op.first + op.inputs + op.outputs; ++k) {
            const TensorId t = p_.operands[static_cast<std::size_t>(k)];
            const Buffer& b = p_.buffers[static_cast<std::size_t>(p_.tensors[static_cast<std::size_t>(t)].buffer)];
            if (b.tier != tier_) continue;
            if (b.offset < 0) say(p_.name(t) + " has no place");
            else if (span(t).begin < 0 || span(t).end > arena) say(fmt::format("{} ends at byte {} of an arena of {}", p_.name(t), span(t).end, arena));
        }
        if (op.workspace < 0 || p_.buffers[static_cast<std::size_t>(op.workspace)].tier != tier_) return;
        const Buffer& w = p_.buffers[static_cast<std::size_t>(op.workspace)];
        if (w.offset < 0 || w.offset + w.bytes > arena) say("the workspace lies outside the arena");
    }

    // The bytes of a tensor; of a slice, wherever any coordinate has it.
    Span span(TensorId id) const {
        const Tensor& t = p_.tensors[static_cast<std::size_t>(id)];
        const std::int64_t size = bytes_of(p_.tables->type(t.type).dtype);
        const std::int64_t begin = p_.buffers[static_cast<std::size_t>(t.buffer)].offset + t.offset * size;
        return {begin, begin + p_.tables->count(t.type) * p_.grid().size(t.slice_axes) * size};
    }

    void keep(TensorId t) {
        intact_[static_cast<std::size_t>(t)] = true;
        tensors_of_[static_cast<std::size_t>(p_.tensors[static_cast<std::size_t>(t)].buffer)].push_back(t);
    }

    void end_tensors(BufferId b, Span s) {
        auto& list = tensors_of_[static_cast<std::size_t>(b)];
        std::erase_if(list, [&](TensorId t) {
            if (!meet(span(t), s)) return false;
            intact_[static_cast<std::size_t>(t)] = false;
            return true;
        });
    }

    // These bytes are b's from now on; what others had there is gone.
    void own(Span s, BufferId b) {
        if (s.begin >= s.end) return;
        auto it = owners_.upper_bound(s.begin);
        if (it != owners_.begin()) --it;
        while (it != owners_.end() && it->first < s.end) {
            const Span old{it->first, it->second.end};
            const BufferId owner = it->second.buffer;
            if (!meet(old, s)) { ++it; continue; }
            if (owner != b) {
                end_tensors(owner, s);
                written_over_[static_cast<std::size_t>(owner)] = op_;
            }
            it = owners_.erase(it);
            if (old.begin < s.begin) owners_[old.begin] = {s.begin, owner};
            if (old.end > s.end) it = owners_.insert({s.end, {old.end, owner}}).first;
        }
        owners_[s.begin] = {s.end, b};
    }

    void write(Span s, BufferId b) {
        end_tensors(b, s);
        own(s, b);
    }

    // A view of its operand's bytes writes nothing: split, and a slice of a buffer where it stands.
    bool is_view(const Op& op) const {
        if (op.kind == Kind::split || op.kind == Kind::join) return true;
        return op.kind == Kind::redistribute && p_.tensors[static_cast<std::size_t>(p_.inputs(op)[0])].buffer == p_.tensors[static_cast<std::size_t>(p_.outputs(op)[0])].buffer &&
               change(p_.type(p_.inputs(op)[0]), p_.tables->type(p_.attributes(op).types[0]).place).pair == Pair::slice;
    }

    // A move in flight holds its operands' bytes until it must be done.
    void hold(const Op& op) {
        std::erase_if(in_flight_, [this](const InFlight& f) { return f.until <= op_; });
        for (const InFlight& f : in_flight_)
            for (const TensorId t : p_.outputs(op))
                if (here(p_.tensors[static_cast<std::size_t>(t)].buffer) && !is_view(op) && meet(span(t), f.span)) say(fmt::format("{} is written while op {} is in flight there", p_.name(t), f.op));
        if (op.until < 0) return;
        for (const auto operands : {p_.inputs(op), p_.outputs(op)})
            for (const TensorId t : operands)
                if (here(p_.tensors[static_cast<std::size_t>(t)].buffer)) in_flight_.push_back({span(t), op.until, op_});
    }

    void step(const Op& op) {
        hold(op);
        check_extent(op);
        for (const TensorId t : p_.inputs(op))
            if (here(p_.tensors[static_cast<std::size_t>(t)].buffer) && !intact_[static_cast<std::size_t>(t)]) say(p_.name(t) + " was overwritten, or never written");
        if (op.workspace >= 0 && here(op.workspace)) {
            const Buffer& w = p_.buffers[static_cast<std::size_t>(op.workspace)];
            write({w.offset, w.offset + w.bytes}, op.workspace);
            for (const TensorId t : p_.inputs(op))
                if (!intact_[static_cast<std::size_t>(t)]) say("the workspace lies over " + p_.name(t));
            for (const TensorId t : p_.outputs(op))
                if (here(p_.tensors[static_cast<std::size_t>(t)].buffer) && meet(span(t), {w.offset, w.offset + w.bytes})) say("the workspace lies over the result " + p_.name(t));
        }
        const bool view = is_view(op);
        for (const TensorId t : p_.outputs(op)) {
            const BufferId b = p_.tensors[static_cast<std::size_t>(t)].buffer;
            if (!here(b)) continue;
            if (!view) write_output(op, t, b);
            if (op.kind == Kind::join) {  // it zeroes the padding
                const Flat& flat = p_.flats[static_cast<std::size_t>(p_.attributes(op).unit)];
                const std::int64_t size = bytes_of(p_.type(t).dtype), begin = span(t).begin;
                write({begin + flat.end * size, begin + flat.length * size}, b);
            }
            keep(t);
        }
    }

    // A result may stand in its own operand's place, but not on another operand of the same op.
    void write_output(const Op& op, TensorId t, BufferId b) {
        const Span s = span(t);
        for (const TensorId x : p_.inputs(op))
            if (p_.tensors[static_cast<std::size_t>(x)].buffer != b && here(p_.tensors[static_cast<std::size_t>(x)].buffer) && meet(span(x), s)) say(fmt::format("{} lies over its operand {}", p_.name(t), p_.name(x)));
        for (const TensorId y : p_.outputs(op))
            if (y != t && here(p_.tensors[static_cast<std::size_t>(y)].buffer) && meet(span(y), s)) say(fmt::format("results {} and {} overlap", p_.name(t), p_.name(y)));
        write(s, b);
    }

    // The state must outlive the step, though nobody reads it again.
    void check_state() {
        for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
            if (!p_.buffers[b].persistent || !here(static_cast<BufferId>(b))) continue;
            op_ = written_over_[b] >= 0 ? written_over_[b] : static_cast<std::int32_t>(p_.ops.size()) - 1;
            bool whole = false;
            for (const TensorId t : tensors_of_[b]) whole = whole || (span(t).begin == p_.buffers[b].offset && span(t).end == p_.buffers[b].offset + p_.buffers[b].bytes);
            if (!whole) say(p_.tables->name(p_.buffers[b].name) + " is not intact when the step ends");
        }
    }

    struct InFlight { Span span; std::int32_t until, op; };
    struct Owner { std::int64_t end; BufferId buffer; };
    const Program& p_;
    const Tier tier_;
    Faults& faults_;
    std::vector<bool> intact_;
    std::vector<std::vector<TensorId>> tensors_of_;  // intact tensors by buffer
    std::vector<std::int32_t> written_over_;         // by buffer: the last op that wrote another buffer's bytes on it
    std::map<std::int64_t, Owner> owners_;           // disjoint runs of bytes
    std::vector<InFlight> in_flight_;
    std::int32_t op_ = -1;
};

}  // namespace

void verify_memory(const Program& p, Faults& faults) {
    for (int t = 0; t < tier_count; ++t) Memory(p, static_cast<Tier>(t), faults).run();
}

}  // namespace quadrille

// Shadow memory: walking the program, whose bytes are these, and which tensors are still intact? A write ends every tensor whose bytes it
// touches.
#include "compile/verify.hpp"

#include "ir/table.hpp"

#include <algorithm>
#include <map>

namespace quadrille {
namespace {

struct Span {
    std::int64_t begin = 0, end = 0;  // bytes from the arena's start
    friend bool operator==(Span, Span) = default;
};
bool meet(Span a, Span b) { return a.begin < b.end && b.begin < a.end; }

class Memory {
  public:
    Memory(const Program& p, Tier tier, Faults& faults)
        : p_(p), tier_(tier), faults_(faults), intact_(p.tensors.size(), false), tensors_of_(p.buffers.size()),
          written_over_(p.buffers.size(), -1), in_flight_(p.buffers.size()) {}

    void run() {
        for (std::size_t b = 0; b < p_.buffers.size(); ++b)
            if (p_.buffers[b].persistent && is_here(p_.buffers[b])) own(extent(p_.buffers[b]), static_cast<BufferId>(b));
        for (const TensorId t : p_.initial_state()) keep(t);
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) step(p_.ops[static_cast<std::size_t>(op_)]);
        check_state();
    }

  private:
    void say(std::string reason) { faults_.push_back({p_.coordinate, op_, std::move(reason)}); }
    bool is_here(const Buffer& b) const { return b.tier == tier_ && b.offset >= 0; }
    bool is_here(TensorId t) const { return is_here(p_.buffer(t)); }
    bool is_intact(TensorId t) const { return intact_[static_cast<std::size_t>(t)]; }
    static Span extent(const Buffer& b) { return {b.offset, b.offset + b.bytes}; }

    // Every operand has a place inside the arena.
    void check_extent(const Op& op) {
        const std::int64_t arena = p_.peaks[static_cast<std::size_t>(tier_)].arena - p_.staging[static_cast<std::size_t>(tier_)];
        for (std::uint32_t k = op.first; k < op.first + op.inputs + op.outputs; ++k) {
            const TensorId t = p_.operands[k];
            const Buffer& b = p_.buffer(t);
            if (b.tier != tier_) continue;
            const Span s = span(t);
            if (b.offset < 0) say(p_.name(t) + " has no place");
            else if (s.begin < 0 || s.end > arena) say(fmt::format("{} ends at byte {} of an arena of {}", p_.name(t), s.end, arena));
        }
        const Buffer* w = workspace(op);
        if (w && w->tier == tier_ && (w->offset < 0 || w->offset + w->bytes > arena)) say("the workspace lies outside the arena");
    }

    const Buffer* workspace(const Op& op) const { return op.workspace < 0 ? nullptr : &p_.buffers[static_cast<std::size_t>(op.workspace)]; }

    // The bytes of a tensor; of a slice, wherever any coordinate has it.
    Span span(TensorId id) const {
        const Tensor& t = p_.tensor(id);
        const std::int64_t size = bytes_of(p_.type(id).dtype);
        const std::int64_t begin = p_.buffer(id).offset + t.offset * size;
        return {begin, begin + p_.tables->count(t.type) * p_.grid().size(t.slice_axes) * size};
    }

    void keep(TensorId t) {
        intact_[static_cast<std::size_t>(t)] = true;
        tensors_of_[static_cast<std::size_t>(p_.tensor(t).buffer)].push_back(t);
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
        return op.kind == Kind::redistribute && p_.tensor(p_.inputs(op)[0]).buffer == p_.tensor(p_.outputs(op)[0]).buffer &&
               change(p_, op).pair == Pair::slice;
    }

    // A move in flight holds its operands' bytes until it must be done. One that may be in flight too begins once it is.
    void hold(const Op& op) {
        if (op.until < 0) {
            for (const TensorId t : p_.outputs(op))
                if (is_here(t) && !is_view(op)) check_in_flight(t);
            return;
        }
        for (const auto operands : {p_.inputs(op), p_.outputs(op)})
            for (const TensorId t : operands)
                if (is_here(t)) in_flight_[static_cast<std::size_t>(p_.tensor(t).buffer)].push_back({span(t), op.until, op_});
    }

    // What is in flight in the buffers that have the bytes of t, which is about to be written.
    void check_in_flight(TensorId t) {
        const Span s = span(t);
        const BufferId own = p_.tensor(t).buffer;
        const auto check = [&](BufferId b) {
            auto& moves = in_flight_[static_cast<std::size_t>(b)];
            std::erase_if(moves, [this](const InFlight& f) { return f.until <= op_; });
            for (const InFlight& f : moves)
                if (meet(s, f.span)) say(fmt::format("{} is written while op {} is in flight there", p_.name(t), f.op));
        };
        check(own);
        auto it = owners_.upper_bound(s.begin);
        if (it != owners_.begin()) --it;
        for (; it != owners_.end() && it->first < s.end; ++it)
            if (it->second.buffer != own && meet({it->first, it->second.end}, s)) check(it->second.buffer);
    }

    void step(const Op& op) {
        hold(op);
        check_extent(op);
        for (const TensorId t : p_.inputs(op))
            if (is_here(t) && !is_intact(t)) say(p_.name(t) + " was overwritten, or never written");
        if (const Buffer* w = workspace(op); w && is_here(*w)) use_workspace(op, extent(*w));
        const bool view = is_view(op);
        for (const TensorId t : p_.outputs(op)) {
            if (!is_here(t)) continue;
            if (!view) write_output(op, t);
            if (op.kind == Kind::join) zero_padding(op, t);
            keep(t);
        }
    }

    void use_workspace(const Op& op, Span w) {
        write(w, op.workspace);
        for (const TensorId t : p_.inputs(op))
            if (is_here(t) && !is_intact(t)) say("the workspace lies over " + p_.name(t));
        for (const TensorId t : p_.outputs(op))
            if (is_here(t) && meet(span(t), w)) say("the workspace lies over the result " + p_.name(t));
    }

    // What a join writes: the views stand in the flat buffer already.
    void zero_padding(const Op& op, TensorId t) {
        const Flat& flat = p_.flats[static_cast<std::size_t>(p_.attributes(op).unit)];
        const std::int64_t size = bytes_of(p_.type(t).dtype), begin = span(t).begin;
        write({begin + flat.end * size, begin + flat.length * size}, p_.tensor(t).buffer);
    }

    // A result may stand in its own operand's place, but not on another operand of the same op.
    void write_output(const Op& op, TensorId t) {
        const Span s = span(t);
        const BufferId b = p_.tensor(t).buffer;
        for (const TensorId x : p_.inputs(op))
            if (p_.tensor(x).buffer != b && is_here(x) && meet(span(x), s)) say(fmt::format("{} lies over its operand {}", p_.name(t), p_.name(x)));
        for (const TensorId y : p_.outputs(op))
            if (y != t && is_here(y) && meet(span(y), s)) say(fmt::format("results {} and {} overlap", p_.name(t), p_.name(y)));
        write(s, b);
    }

    // The state must outlive the step, though nobody reads it again.
    void check_state() {
        for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
            const Buffer& buffer = p_.buffers[b];
            if (!buffer.persistent || !is_here(buffer)) continue;
            op_ = written_over_[b] >= 0 ? written_over_[b] : static_cast<std::int32_t>(p_.ops.size()) - 1;
            // A slice's span is that of all ranks' slices, of which this one has its own.
            const auto fills = [&](TensorId t) { return p_.tensor(t).slice_axes.empty() && span(t) == extent(buffer); };
            if (std::none_of(tensors_of_[b].begin(), tensors_of_[b].end(), fills))
                say(p_.tables->name(buffer.name) + " is not intact when the step ends");
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
    std::vector<std::vector<InFlight>> in_flight_;   // by buffer; those that are over go when somebody looks
    std::int32_t op_ = -1;
};

}  // namespace

void verify_memory(const Program& p, Faults& faults) {
    for (int t = 0; t < tier_count; ++t) Memory(p, static_cast<Tier>(t), faults).run();
}

}  // namespace quadrille

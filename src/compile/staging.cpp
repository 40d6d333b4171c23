#include "compile/staging.hpp"

#include "ir/table.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace quadrille {
namespace {

constexpr std::int32_t none = -1;

// An op whose operands are to be in host memory.
bool meets_host(const Program& p, const Op& op) {
    if (op.kind == Kind::load) return p.attributes(op).input != Input::positions;
    return moves_between_ranks(op);
}

class Staging {
  public:
    explicit Staging(Program& p)
        : p_(p), ops_(std::exchange(p.ops, {})), first_own_(static_cast<BufferId>(p.buffers.size())), sent_(ops_.size()) {}

    void run() {
        find_sent();
        for (std::size_t i = 0; i < ops_.size(); ++i) {
            if (meets_host(p_, ops_[i])) through_host(i);
            else keep(ops_[i]);
            for (const auto& [move, x] : sent_[i]) ready_[{move, x}] = copied_out(move, x, ops_[i]);
            tell(ops_[i]);
        }
        drop_unread();
    }

  private:
    // A tensor's copy in host memory, and the op that had last written to its buffer then: if another has since, the copy may be gone.
    struct Twin { TensorId tensor = none; std::int32_t written = none; };
    // The buffer of host memory in which an op works instead of one of the device, and how much further on tensors lie in it.
    struct Room { BufferId buffer = none; std::int64_t shift = 0; };

    BufferId buffer(TensorId t) const { return p_.tensor(t).buffer; }
    bool on_host(TensorId t) const { return p_.type(t).tier == Tier::host; }
    TensorType in_host(TensorType t) const {
        t.tier = Tier::host;
        return t;
    }

    // What is made in the same action leaves behind the op that makes it; earlier it would wait in host memory for long.
    void find_sent() {
        std::vector<std::size_t> maker(p_.tensors.size(), ops_.size());
        for (std::size_t i = 0; i < ops_.size(); ++i) {
            for (const TensorId x : meets_host(p_, ops_[i]) ? p_.inputs(ops_[i]) : std::span<const TensorId>{})
                if (const std::size_t k = maker[static_cast<std::size_t>(x)]; k < i && ops_[k].action == ops_[i].action && !on_host(x))
                    sent_[k].emplace_back(i, x);
            const bool copies = meets_host(p_, ops_[i]) || ops_[i].kind == Kind::move;  // then host memory has it anyway
            for (const TensorId t : p_.outputs(ops_[i])) maker[static_cast<std::size_t>(t)] = copies ? ops_.size() : i;
        }
    }

    void keep(const Op& op) {
        put(op);
        if (op.kind != Kind::move) return;
        if (const TensorId from = p_.inputs(op)[0]; on_host(from)) pair(p_.outputs(op)[0], from);
    }

    void put(const Op& op) {
        for (const TensorId t : p_.outputs(op))
            if (on_host(t)) written_[buffer(t)] = static_cast<std::int32_t>(p_.ops.size());
        p_.ops.push_back(op);
    }

    void pair(TensorId t, TensorId host) { twins_[t] = {host, last_written(buffer(host))}; }
    std::int32_t last_written(BufferId b) const {
        const auto it = written_.find(b);
        return it == written_.end() ? none : it->second;
    }
    TensorId twin(TensorId t) const {
        const auto it = twins_.find(t);
        return it != twins_.end() && last_written(buffer(it->second.tensor)) == it->second.written ? it->second.tensor : none;
    }

    // The op on operands in host memory, and what brings its results to the device.
    void through_host(std::size_t i) {
        Op op = ops_[i];
        std::vector<TensorId> in, out;
        const std::vector<TensorId> sent(p_.inputs(op).begin(), p_.inputs(op).end()), made(p_.outputs(op).begin(), p_.outputs(op).end());
        for (const TensorId x : sent) in.push_back(taken(i, x));
        for (const TensorId y : made) out.push_back(on_host(y) ? y : place(i, y));
        Attributes a = p_.attributes(op);
        for (TypeId& t : a.types) t = p_.tables->intern(in_host(p_.tables->type(t)));
        op.attributes = p_.tables->intern(a);
        p_.set_operands(op, in, out);
        put(op);
        for (std::size_t k = 0; k < made.size(); ++k) {
            if (on_host(made[k])) continue;
            pair(made[k], out[k]);
            move(out[k], made[k], op);
        }
    }

    // x in host memory, as op i of those before reads it.
    TensorId taken(std::size_t i, TensorId x) {
        if (on_host(x)) return x;
        if (const auto it = ready_.find({i, x}); it != ready_.end()) return it->second;
        const TensorId there = twin(x);
        return there >= 0 && (!works_in(i, buffer(x)) || takes_over(i, x, there)) ? there : copied_out(i, x, ops_[i]);
    }

    TensorId copied_out(std::size_t i, TensorId x, const Op& beside) {
        const TensorId there = place(i, x);
        move(x, there, beside);
        return there;
    }

    // Whether op i has an operand and a result in this buffer.
    bool works_in(std::size_t i, BufferId b) const {
        const auto stands = [&](TensorId t) { return buffer(t) == b; };
        const auto in = p_.inputs(ops_[i]), out = p_.outputs(ops_[i]);
        return std::any_of(in.begin(), in.end(), stands) && std::any_of(out.begin(), out.end(), stands);
    }

    // A place in host memory for an operand of op i: in memory of its own, or, where the op works in a buffer, beside the others in that.
    TensorId place(std::size_t i, TensorId t) {
        const Tensor from = p_.tensor(t);
        const TensorType type = in_host(p_.type(t)).in(Book::buffers);
        const std::string name = p_.tables->name(from.name);
        if (!works_in(i, from.buffer)) return p_.declare(name, type, from.microbatch);
        const auto [it, fresh] = rooms_.try_emplace({i, from.buffer});
        if (fresh) it->second = {p_.add_buffer(name, from.microbatch, type), -least_offset(i, from.buffer)};
        return p_.declare(name, type, from.microbatch, it->second.buffer, from.offset + it->second.shift, from.slice_axes);
    }

    // Whether op i may work where an earlier one has left its operand x: not in a home, nor where x lies otherwise than on the device.
    bool takes_over(std::size_t i, TensorId x, TensorId there) {
        const Tensor &from = p_.tensor(x), &to = p_.tensor(there);
        const Room room = {to.buffer, to.offset - from.offset};
        if (to.buffer < first_own_ || !(from.slice_axes == to.slice_axes) || least_offset(i, from.buffer) + room.shift < 0) return false;
        const Room& given = rooms_.try_emplace({i, from.buffer}, room).first->second;
        return given.buffer == room.buffer && given.shift == room.shift;
    }

    std::int64_t least_offset(std::size_t i, BufferId b) const {
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        for (const auto operands : {p_.inputs(ops_[i]), p_.outputs(ops_[i])})
            for (const TensorId t : operands)
                if (buffer(t) == b) least = std::min(least, p_.tensor(t).offset);
        return least;
    }

    // Appends a copy of `from` at `to`, for the sake of the op beside it.
    void move(TensorId from, TensorId to, const Op& beside) {
        Op op;
        op.kind = Kind::move;
        op.part = beside.part;
        op.clone = beside.clone;
        op.microbatch = beside.microbatch;
        op.action = beside.action;
        op.unit = beside.unit;
        op.queue = copy_queue(p_.type(from).tier, p_.type(to).tier);
        Attributes a;
        a.tier = p_.type(to).tier;
        op.attributes = p_.tables->intern(a);
        p_.set_operands(op, std::vector<TensorId>{from}, std::vector<TensorId>{to});
        put(op);
    }

    // The loop reads scalars in host memory.
    void tell(const Op& op) {
        const std::vector<TensorId> made(p_.outputs(op).begin(), p_.outputs(op).end());
        for (const TensorId t : made) {
            if (!p_.tells(t) || on_host(t)) continue;
            TensorId there = twin(t);
            if (there < 0) {
                there = p_.declare(p_.tables->name(p_.tensor(t).name), in_host(p_.type(t)), p_.tensor(t).microbatch);
                move(t, there, op);
            }
            p_.tell_instead(t, there);
        }
    }

    // Copies whose only readers have found what they need in host memory.
    void drop_unread() {
        std::vector<bool> read(p_.tensors.size(), false), dropped(p_.ops.size(), false);
        for (std::size_t i = p_.ops.size(); i-- > 0;) {
            const Op& op = p_.ops[i];
            if (op.kind == Kind::move) {
                const TensorId t = p_.outputs(op)[0];
                dropped[i] = !read[static_cast<std::size_t>(t)] && !p_.tells(t) && !p_.buffer(t).persistent;
            }
            if (dropped[i]) continue;
            for (const TensorId t : p_.inputs(op)) read[static_cast<std::size_t>(t)] = true;
        }
        std::size_t i = 0;
        std::erase_if(p_.ops, [&](const Op&) { return static_cast<bool>(dropped[i++]); });
    }

    Program& p_;
    const std::vector<Op> ops_;        // as they were
    const BufferId first_own_;         // of the buffers that are made here
    std::vector<std::vector<std::pair<std::size_t, TensorId>>> sent_;      // by op: what leaves behind it, and for which
    std::map<std::pair<std::size_t, TensorId>, TensorId> ready_;           // ... and where it is then
    std::map<std::pair<std::size_t, BufferId>, Room> rooms_;               // by op and buffer of the device
    std::map<TensorId, Twin> twins_;
    std::map<BufferId, std::int32_t> written_;                             // buffers of host memory: by which op last
};

}  // namespace

void stage_through_host(Program& p) { Staging(p).run(); }

}  // namespace quadrille

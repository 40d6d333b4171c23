#include "compile/message.hpp"
#include "compile/verify.hpp"
#include "ir/table.hpp"

#include <map>
#include <set>

namespace quadrille {
namespace {

// One end of a message.
struct End {
    Message message;
    TypeId type;
    std::int32_t op;
};

bool redistributes_over_pp(const Program& p, const Op& op) {
    if (op.kind != Kind::redistribute || op.queue != Queue::collective) return false;
    return change(p, op).axes.has(Axis::pp);
}

std::vector<int> members(const Program& p, const Op& op) { return pp_members(p.grid(), p.destination(op).holders); }

// Per pair of coordinates: what is sent is what is received, in the same order, of the same type.
void check_pairing(const std::vector<Program>& programs, Faults& faults) {
    struct Channel { std::vector<End> sent, received; };
    std::map<std::pair<int, int>, Channel> channels;  // by from, to
    for (const Program& p : programs)
        for (std::size_t i = 0; i < p.ops.size(); ++i) {
            const Op& op = p.ops[i];
            if (op.kind != Kind::send && op.kind != Kind::recv) continue;
            const TensorId t = op.kind == Kind::send ? p.inputs(op)[0] : p.outputs(op)[0];
            const Message m = message_of(p, op);
            Channel& c = channels[{m.from, m.to}];
            (op.kind == Kind::send ? c.sent : c.received).push_back({m, p.tables->intern(p.type(t).in(Book::buffers)), static_cast<std::int32_t>(i)});
        }
    for (const auto& [ends, channel] : channels) {
        const auto& [sent, received] = channel;
        const auto [from, to] = ends;
        for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
            if (i >= sent.size()) { faults.push_back({to, received[i].op, "nobody sends this"}); break; }
            if (i >= received.size()) { faults.push_back({from, sent[i].op, "nobody receives this"}); break; }
            if (sent[i].message == received[i].message && sent[i].type == received[i].type) continue;
            faults.push_back({to, received[i].op, fmt::format("message {} from pp {} is another one, or of another type", i, from)});
            break;
        }
    }
}

// Runs the coordinates with the least helpful wire: a send blocks until its receive is posted, a reader and the op that a receive must be
// done before until its message was sent, a collective over pp until all its members are at it.
class Progress {
  public:
    Progress(const std::vector<Program>& programs, Faults& faults)
        : programs_(programs), faults_(faults), at_(programs.size(), 0), posted_(programs.size()) {}

    void run() {
        for (bool moving = true; moving;) {
            moving = false;
            for (std::size_t r = 0; r < programs_.size(); ++r)
                while (!finished(r) && advance(r)) moving = true;
        }
        for (std::size_t r = 0; r < programs_.size(); ++r)
            if (!finished(r))
                faults_.push_back({programs_[r].coordinate, static_cast<std::int32_t>(at_[r]), "the step stops here for ever: dead-lock"});
    }

  private:
    struct Posted { Message message; std::int32_t until; };
    using Receives = std::map<TensorId, Posted>;

    bool finished(std::size_t r) const { return at_[r] >= programs_[r].ops.size(); }

    // Forgets a receive whose message was sent; false if it was not yet.
    bool arrived(std::size_t r, Receives::iterator it) {
        if (!sent_.contains(it->second.message)) return false;
        posted_[r].erase(it);
        return true;
    }

    bool advance(std::size_t r) {
        const Program& p = programs_[r];
        const Op& op = p.ops[at_[r]];
        for (const TensorId t : p.inputs(op))
            if (const auto it = posted_[r].find(t); it != posted_[r].end() && !arrived(r, it)) return false;
        for (auto it = posted_[r].begin(); it != posted_[r].end();) {  // what must be done before this op
            const auto now = it++;
            if (now->second.until <= static_cast<std::int32_t>(at_[r]) && !arrived(r, now)) return false;
        }
        if (op.kind == Kind::recv) {
            const Message m = message_of(p, op);
            posted_[r][p.outputs(op)[0]] = {m, op.until < 0 ? static_cast<std::int32_t>(at_[r]) + 1 : op.until};
            open_.insert(m);
        }
        if (op.kind == Kind::send) {
            const Message m = message_of(p, op);
            if (!open_.contains(m)) return false;
            sent_.insert(m);
        }
        if (redistributes_over_pp(p, op)) return meet(p, op);
        ++at_[r];
        return true;
    }

    // A collective over pp: all members go on together, once each is at it.
    bool meet(const Program& p, const Op& op) {
        const std::vector<int> group = members(p, op);
        for (const int m : group) {
            const auto r = static_cast<std::size_t>(m);
            if (finished(r) || !same_collective(p, op, programs_[r], programs_[r].ops[at_[r]])) return false;
        }
        for (const int m : group) ++at_[static_cast<std::size_t>(m)];
        return true;
    }

    static bool same_collective(const Program& p, const Op& a, const Program& q, const Op& b) {
        if (!redistributes_over_pp(q, b) || members(q, b) != members(p, a)) return false;
        if (b.unit != a.unit || b.inputs != a.inputs || b.attributes != a.attributes) return false;
        const TensorType &x = p.type(p.inputs(a)[0]), &y = q.type(q.inputs(b)[0]);
        return y.place == x.place && y.shape == x.shape && y.dtype == x.dtype;
    }

    const std::vector<Program>& programs_;
    Faults& faults_;
    std::vector<std::size_t> at_;
    std::vector<Receives> posted_;  // whose message was not needed yet
    std::set<Message> open_, sent_;  // messages whose receive is posted; that were sent
};

}  // namespace

void verify_messages(const std::vector<Program>& programs, Faults& faults) {
    check_pairing(programs, faults);
    if (faults.empty()) Progress(programs, faults).run();
}

}  // namespace quadrille

#include "compile/verify.hpp"

#include "ir/print.hpp"
#include "ir/table.hpp"

#include <map>
#include <set>
#include <tuple>

namespace quadrille {
namespace {

struct Message {
    bool gradient;
    int chunk, microbatch;
    TypeId type;
    std::int32_t op;
    auto key() const { return std::tuple(gradient, chunk, microbatch); }
};

bool redistributes_over_pp(const Program& p, const Op& op) {
    if (op.kind != Kind::redistribute || op.queue != Queue::collective) return false;
    return change(p.type(p.inputs(op)[0]), p.tables->type(p.attributes(op).types[0]).place).axes.has(Axis::pp);
}

std::vector<int> members(const Program& p, const Op& op) {
    const int pp = p.grid().extent(Axis::pp);
    if (p.tables->type(p.attributes(op).types[0]).place.holders == Holders::ends) return {0, pp - 1};
    std::vector<int> all;
    for (int r = 0; r < pp; ++r) all.push_back(r);
    return all;
}

// Per pair of coordinates: what is sent is what is received, in the same order, of the same type.
void check_pairing(const std::vector<Program>& programs, Faults& faults) {
    std::map<std::pair<int, int>, std::pair<std::vector<Message>, std::vector<Message>>> channels;  // from, to -> sent, received
    for (const Program& p : programs)
        for (std::size_t i = 0; i < p.ops.size(); ++i) {
            const Op& op = p.ops[i];
            if (op.kind != Kind::send && op.kind != Kind::recv) continue;
            const Attributes& a = p.attributes(op);
            const TensorId t = op.kind == Kind::send ? p.inputs(op)[0] : p.outputs(op)[0];
            TensorType travelling = p.type(t).in(Book::buffers);
            const Message m{a.gradient, a.chunk, op.microbatch, p.tables->intern(travelling), static_cast<std::int32_t>(i)};
            if (op.kind == Kind::send) channels[{p.coordinate, a.peer}].first.push_back(m);
            else channels[{a.peer, p.coordinate}].second.push_back(m);
        }
    for (const auto& [ends, both] : channels) {
        const auto& [sent, received] = both;
        for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
            if (i >= sent.size()) { faults.push_back({ends.second, received[i].op, "nobody sends this"}); break; }
            if (i >= received.size()) { faults.push_back({ends.first, sent[i].op, "nobody receives this"}); break; }
            if (sent[i].key() == received[i].key() && sent[i].type == received[i].type) continue;
            faults.push_back({ends.second, received[i].op, fmt::format("message {} from pp {} is another one, or of another type", i, ends.first)});
            break;
        }
    }
}

// Runs the coordinates with the least helpful wire: a send blocks until its receive is posted, a reader and the op that a receive must be
// done before until its message was sent, a collective over pp until all its members are at it.
class Progress {
  public:
    Progress(const std::vector<Program>& programs, Faults& faults) : programs_(programs), faults_(faults), at_(programs.size(), 0), posted_(programs.size()) {}

    void run() {
        for (bool moving = true; moving;) {
            moving = false;
            for (std::size_t r = 0; r < programs_.size(); ++r)
                while (at_[r] < programs_[r].ops.size() && advance(r)) moving = true;
        }
        for (std::size_t r = 0; r < programs_.size(); ++r)
            if (at_[r] < programs_[r].ops.size()) faults_.push_back({programs_[r].coordinate, static_cast<std::int32_t>(at_[r]), "the step stops here for ever: dead-lock"});
    }

  private:
    using Tag = std::tuple<int, int, bool, int, int>;  // from, to, gradient, chunk, microbatch
    struct Posted { Tag tag; std::int32_t until; };
    using Receives = std::map<TensorId, Posted>;

    // Forgets a receive whose message was sent; false if it was not yet.
    bool arrived(std::size_t r, Receives::iterator it) {
        if (!sent_.contains(it->second.tag)) return false;
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
        const Attributes& a = p.attributes(op);
        if (op.kind == Kind::recv) {
            const Tag tag{a.peer, p.coordinate, a.gradient, a.chunk, op.microbatch};
            posted_[r][p.outputs(op)[0]] = {tag, op.until < 0 ? static_cast<std::int32_t>(at_[r]) + 1 : op.until};
            open_.insert(tag);
        }
        if (op.kind == Kind::send) {
            const Tag tag{p.coordinate, a.peer, a.gradient, a.chunk, op.microbatch};
            if (!open_.contains(tag)) return false;
            sent_.insert(tag);
        }
        if (redistributes_over_pp(p, op)) return meet(p, op);
        ++at_[r];
        return true;
    }

    bool meet(const Program& p, const Op& op) {
        const auto group = members(p, op);
        const Placement& from = p.type(p.inputs(op)[0]).place;
        for (const int m : group) {
            const Program& q = programs_[static_cast<std::size_t>(m)];
            if (at_[static_cast<std::size_t>(m)] >= q.ops.size()) return false;
            const Op& other = q.ops[at_[static_cast<std::size_t>(m)]];
            if (!redistributes_over_pp(q, other) || members(q, other) != group || other.unit != op.unit || other.inputs != op.inputs || other.attributes != op.attributes) return false;
            const TensorType& t = q.type(q.inputs(other)[0]);
            if (!(t.place == from) || t.shape != p.type(p.inputs(op)[0]).shape || t.dtype != p.type(p.inputs(op)[0]).dtype) return false;
        }
        for (const int m : group) ++at_[static_cast<std::size_t>(m)];
        return true;
    }

    const std::vector<Program>& programs_;
    Faults& faults_;
    std::vector<std::size_t> at_;
    std::vector<Receives> posted_;  // whose message was not needed yet
    std::set<Tag> open_, sent_;
};

}  // namespace

void verify_messages(const std::vector<Program>& programs, Faults& faults) {
    check_pairing(programs, faults);
    if (faults.empty()) Progress(programs, faults).run();
}

}  // namespace quadrille

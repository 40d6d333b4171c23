#include "compile/bucket.hpp"

#include "compile/fetch.hpp"

#include <algorithm>

namespace quadrille {
namespace {

bool bucketed(const Program& p, const Op& op) { return moves_flat(p, op) && !gathers_for_use(p, op); }

class Bucket {
  public:
    Bucket(Program& p, std::int64_t bytes) : p_(p), bytes_(bytes), pending_(p.tensors.size(), false) {}

    void run() {
        std::vector<Op> ops = std::move(p_.ops);
        p_.ops.clear();
        left_ = std::count_if(ops.begin(), ops.end(), [this](const Op& op) { return bucketed(p_, op); });
        for (const Op& op : ops) take(op);
    }

  private:
    void take(const Op& op) {
        if (op.action >= 0 && !waiting_.empty() && p_.buffer(p_.inputs(waiting_[0])[0]).state == StateKind::stale) flush();  // their place is needed
        const bool moves = bucketed(p_, op), reads = reads_pending(op);
        left_ -= moves;
        const bool brings_home = op.kind == Kind::move && op.part == Part::step;
        if (reads && (moves || brings_home || settles(op) || adds_squares(p_, op))) {
            behind_.push_back(op);
            mark(op, true);
        } else if (moves) {
            const std::int64_t bytes = local_bytes(p_.grid(), p_.type(p_.inputs(op)[0]));
            while (!waiting_.empty() && (held_ + bytes > bytes_ || !same_way(waiting_[0], op))) flush();
            waiting_.push_back(op);
            mark(op, true);
            held_ += bytes;
        } else {
            while (reads_pending(op)) flush();
            p_.ops.push_back(op);
        }
        while (!waiting_.empty() && (left_ == 0 || held_ >= bytes_)) flush();
    }

    bool reads_pending(const Op& op) const {
        const auto in = p_.inputs(op);
        return std::any_of(in.begin(), in.end(), [this](TensorId t) { return pending_[static_cast<std::size_t>(t)]; });
    }

    void mark(const Op& op, bool waits) {
        for (const TensorId t : p_.outputs(op)) pending_[static_cast<std::size_t>(t)] = waits;
    }

    bool same_way(const Op& a, const Op& b) const {
        const TensorId x = p_.inputs(a)[0], y = p_.inputs(b)[0];
        return p_.type(x).place == p_.type(y).place && p_.type(x).dtype == p_.type(y).dtype &&
               p_.tables->type(p_.attributes(a).types[0]).place == p_.tables->type(p_.attributes(b).types[0]).place;
    }

    // Issues the bucket, then what was put behind it, which may form the next one.
    void flush() {
        if (waiting_.empty()) return;
        if (waiting_.size() == 1) p_.ops.push_back(waiting_[0]);
        else append_joined();
        for (const Op& op : waiting_) mark(op, false);
        waiting_.clear();
        held_ = 0;
        std::vector<Op> behind;
        behind.swap(behind_);
        for (const Op& op : behind) {
            mark(op, false);
            left_ += bucketed(p_, op);
        }
        for (const Op& op : behind) take(op);
    }

    void append_joined() {
        std::vector<TensorId> in, out;
        for (const Op& op : waiting_) {
            in.push_back(p_.inputs(op)[0]);
            out.push_back(p_.outputs(op)[0]);
        }
        p_.append(waiting_.back(), in, out);
    }

    Program& p_;
    const std::int64_t bytes_;
    std::vector<bool> pending_;          // results of what waits or was put behind
    std::vector<Op> waiting_, behind_;
    std::int64_t held_ = 0, left_ = 0;   // bytes that wait; bucketed ops still to come
};

}  // namespace

void bucket(Program& p, std::int64_t bucket_bytes) { Bucket(p, bucket_bytes).run(); }

bool travels_in_buckets(const Program& p, const Op& op) {
    if (op.inputs <= 1) return bucketed(p, op);
    // Nothing else of several flat tensors goes over these axes.
    return op.kind == Kind::redistribute && p.type(p.inputs(op)[0]).dims != 0 && (data_axes | AxisSet(Axis::sp)).contains(change_of(p, op).axes);
}

}  // namespace quadrille

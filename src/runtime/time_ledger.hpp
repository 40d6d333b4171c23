// Where a step's time goes: one running clock, each stretch of it charged to one category, so that the categories add up to
// the wall time by construction.
#pragma once
#include "grid/grid.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace quadrille {

enum class Category : std::uint8_t {
    compute, optimizer, exposed_dp, exposed_tp, exposed_sp, exposed_pp, pipeline_idle, exposed_copy, exposed_disk, data, checkpoint, compression,
    other,
};
constexpr int category_count = static_cast<int>(Category::other) + 1;
std::string_view name_of(Category);

using Times = std::array<double, category_count>;  // seconds
inline double& at(Times& t, Category c) { return t[static_cast<std::size_t>(c)]; }
inline double at(const Times& t, Category c) { return t[static_cast<std::size_t>(c)]; }

// A wait for a move over these axes counts for the first of dp, sp, tp, pp among them.
Category exposed(AxisSet axes);

class TimeLedger {
  public:
    // One charge: from where the one before ends to `end`.
    struct Charge { Category category; double end; };

    // `keeps`: each charge by itself.
    explicit TimeLedger(double now, bool keeps = false) : begin_(now), last_(now), keeps_(keeps) {}
    // Charges the time since the last call, and returns it.
    double charge(Category c, double now) {
        const double seconds = now - last_;
        at(times_, c) += seconds;
        last_ = now;
        if (keeps_) charges_.push_back({c, now});
        return seconds;
    }
    // The same, split at `moment`: what is before it goes to `early`. Returns what went to `late`.
    double charge_split(Category early, Category late, double moment, double now);
    double begin() const { return begin_; }
    double last() const { return last_; }
    double seconds() const { return last_ - begin_; }
    const Times& times() const { return times_; }
    std::span<const Charge> charges() const { return charges_; }

  private:
    double begin_, last_;
    bool keeps_;
    Times times_{};
    std::vector<Charge> charges_;
};

// An op on the compute queue of a device, and what the queue waited for before it (other: for nothing).
struct QueuedTime {
    Category category = Category::compute, waited = Category::other;
    double begin = 0, end = 0;
};

// The ledger of a step whose ops ran behind the calling thread, in this order: a moment belongs to the op that ran; else to what the thread waited
// for, which keeps its charges; else to what the queue waited for. They add up to the thread's wall time.
Times times_behind(const TimeLedger& thread, std::span<const QueuedTime> ops);

}  // namespace quadrille

// Where a step's time goes: one running clock, each stretch of it charged to one category, so that the categories add up to
// the wall time by construction.
#pragma once
#include "grid/grid.hpp"

#include <array>
#include <cstdint>
#include <string_view>

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
    explicit TimeLedger(double now) : begin_(now), last_(now) {}
    // Charges the time since the last call, and returns it.
    double charge(Category c, double now) {
        const double seconds = now - last_;
        at(times_, c) += seconds;
        last_ = now;
        return seconds;
    }
    // The same, split at `moment`: what is before it goes to `early`. Returns what went to `late`.
    double charge_split(Category early, Category late, double moment, double now);
    double last() const { return last_; }
    double seconds() const { return last_ - begin_; }
    const Times& times() const { return times_; }

  private:
    double begin_, last_;
    Times times_{};
};

}  // namespace quadrille

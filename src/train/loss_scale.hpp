// The factor on the loss in fp16's backward pass: found by trying (Micikevicius et al. 2018, section 3.2). Owns the rule and its state,
// which is two numbers; knows nothing of steps, ranks or output. Pure.
#pragma once
#include "config/config.hpp"

namespace quadrille {

class LossScale {
  public:
    explicit LossScale(const LossScaleConfig& config) : config_(config), value_(config.initial) {}
    // Goes on from a scale that was found before, brought into this input's bounds.
    LossScale(const LossScaleConfig& config, double value, std::int64_t good_steps)
        : config_(config), value_(value < config.minimum ? config.minimum : value), good_steps_(good_steps) {}

    double value() const { return value_; }
    std::int64_t good_steps() const { return good_steps_; }  // in a row, since the scale last changed

    // A step's gradients were finite. The scale doubles after `window` such steps in a row.
    void finite();
    // They were not: the scale halves. False where it is at its minimum, and stays there.
    bool overflowed();

  private:
    LossScaleConfig config_;
    double value_;
    std::int64_t good_steps_ = 0;
};

}  // namespace quadrille

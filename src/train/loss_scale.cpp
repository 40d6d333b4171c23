#include "train/loss_scale.hpp"

#include <algorithm>

namespace quadrille {

void LossScale::finite() {
    if (++good_steps_ < config_.window) return;
    good_steps_ = 0;
    value_ = std::min(2 * value_, LossScaleConfig::most);
}

bool LossScale::overflowed() {
    good_steps_ = 0;
    if (value_ <= config_.minimum) return false;
    value_ /= 2;
    return true;
}

}  // namespace quadrille

#include "train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quadrille {
namespace {

// How far k is on the way from `begin` to `begin + length`, 0 to 1; a way of no length is over at once.
double progress(std::int64_t k, std::int64_t begin, std::int64_t length) {
    if (length <= 0) return k > begin ? 1.0 : 0.0;
    return std::clamp(static_cast<double>(k - begin) / static_cast<double>(length), 0.0, 1.0);
}

}  // namespace

double learning_rate(const OptimizerConfig& o, std::int64_t steps, std::int64_t k) {
    if (k <= o.warmup_steps) return o.lr * static_cast<double>(k) / static_cast<double>(o.warmup_steps);
    switch (o.lr_schedule) {
        case LrSchedule::constant: return o.lr;
        case LrSchedule::linear: return std::lerp(o.lr, o.min_lr, progress(k, o.warmup_steps, o.decay_steps - o.warmup_steps));
        case LrSchedule::cosine: {
            const double t = progress(k, o.warmup_steps, o.decay_steps - o.warmup_steps);
            return std::lerp(o.lr, o.min_lr, 0.5 * (1.0 - std::cos(std::numbers::pi * t)));
        }
        case LrSchedule::wsd: return std::lerp(o.lr, o.min_lr, progress(k, steps - o.decay_steps, o.decay_steps));
    }
    return o.lr;
}

}  // namespace quadrille

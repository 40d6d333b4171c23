// The learning rate of each step.
#pragma once
#include "config/config.hpp"

namespace quadrille {

// Of step k, from 1. Warm-up: lr·k/warmup. Then constant: lr. linear, cosine (Loshchilov and Hutter 2017): from lr to min_lr as
// t = (k - warmup)/(decay_steps - warmup) goes to 1, min_lr ever after. wsd (Hu et al. 2024): lr until the last decay_steps of the
// run, which go down to min_lr in a line.
double learning_rate(const OptimizerConfig&, std::int64_t steps, std::int64_t k);

}  // namespace quadrille

// The batch: global_batch_size = micro_batch_size · gradient_accumulation_steps · dp. Only dp enters; the ranks of tp, pp and
// sp work on the same sequences.
#include "config/resolve.hpp"

#include "base/error.hpp"
#include "config/rules.hpp"

#include <algorithm>

namespace quadrille::input {

namespace {

constexpr const char* global_key = "train.global_batch_size";
constexpr const char* micro_key = "train.micro_batch_size";
constexpr const char* steps_key = "train.gradient_accumulation_steps";

// All three are written: they must agree.
void check_product(const TrainConfig& t, std::int64_t dp, Rules& rules) {
    const __int128 all = static_cast<__int128>(t.micro_batch_size) * t.gradient_accumulation_steps * dp;
    rules.expect({global_key, micro_key, steps_key, "grid.dp"}, all == t.global_batch_size,
                 fmt::format("found global_batch_size {}, but micro_batch_size {} x gradient_accumulation_steps {} x dp {} = {}",
                             t.global_batch_size, t.micro_batch_size, t.gradient_accumulation_steps, dp, static_cast<double>(all)));
}

// global ÷ (factor · dp), where it is whole.
void divide(std::int64_t& quotient, const TrainConfig& t, const char* name, std::int64_t factor, std::int64_t dp, Rules& rules,
            std::initializer_list<const char*> keys) {
    const __int128 divisor = static_cast<__int128>(factor) * dp;
    if (rules.expect(keys, t.global_batch_size % divisor == 0,
                     fmt::format("found global_batch_size {}, which is not a multiple of {} {} x dp {} = {}", t.global_batch_size,
                                 name, factor, dp, static_cast<double>(divisor))))
        quotient = std::max<std::int64_t>(1, static_cast<std::int64_t>(t.global_batch_size / divisor));
}

void multiply(TrainConfig& t, std::int64_t dp, Rules& rules) {
    constexpr std::int64_t most = 1000000000000;
    const __int128 all = static_cast<__int128>(t.micro_batch_size) * t.gradient_accumulation_steps * dp;
    if (rules.expect({micro_key, steps_key, "grid.dp"}, all <= most,
                     fmt::format("micro_batch_size {} x gradient_accumulation_steps {} x dp {} is more than {} sequences",
                                 t.micro_batch_size, t.gradient_accumulation_steps, dp, most)))
        t.global_batch_size = static_cast<std::int64_t>(all);
}

}  // namespace

void resolve_batch(Config& config, const Settings& settings, Problems& problems) {
    TrainConfig& t = config.train;
    Rules rules(settings, problems);
    const std::int64_t dp = config.grid.dp;
    const bool global = settings.given(global_key), micro = settings.given(micro_key), steps = settings.given(steps_key);
    if (global && micro && steps) return check_product(t, dp, rules);
    if (global && steps)
        return divide(t.micro_batch_size, t, "gradient_accumulation_steps", t.gradient_accumulation_steps, dp, rules,
                      {global_key, steps_key, "grid.dp"});
    if (steps) return multiply(t, dp, rules);  // with micro as written or by default
    if (global && micro)
        return divide(t.gradient_accumulation_steps, t, "micro_batch_size", t.micro_batch_size, dp, rules,
                      {global_key, micro_key, "grid.dp"});
    if (global) {
        // The default micro batch yields: the largest up to it that divides.
        if (!rules.expect({global_key, "grid.dp"}, t.global_batch_size % dp == 0,
                          fmt::format("found global_batch_size {}, which is not a multiple of dp {}", t.global_batch_size, dp)))
            return;
        while (t.micro_batch_size > 1 && t.global_batch_size % (t.micro_batch_size * dp) != 0) --t.micro_batch_size;
        t.gradient_accumulation_steps = std::max<std::int64_t>(1, t.global_batch_size / (t.micro_batch_size * dp));
        return;
    }
    // The default global batch yields: rounded up to whole micro batches on every rank.
    const std::int64_t pass = t.micro_batch_size * dp;
    t.gradient_accumulation_steps = (t.global_batch_size + pass - 1) / pass;
    multiply(t, dp, rules);
}

}  // namespace quadrille::input

// What two inputs say differently: that of the run which wrote a checkpoint, and that of the one which goes on from it.
//
// Owns the class of every key at a resume. A key of `model` that shapes the model must match; every other key is the new input's, and told where it
// differs. What the training has come to (step, weights, moments, loss scale, place in the data) stands in no key.
#pragma once
#include "config/config.hpp"

#include <string>
#include <vector>

namespace quadrille {

struct Difference {
    std::string key, before, now;  // values as the input file has them, on one line; long ones shortened
    bool must_match = false;
};

// The differences of the resolved input `former`, of this program or an older one, from `now`, in the order of the table of keys. Left out are
// device.memory_limit, which is as a rule derived from what happens to be free, how a run begins (checkpoint.resume and output.overwrite), keys that
// in both inputs follow from one that is told (shard_size from dp, decay_steps from steps), and what is of comm.compression where neither compresses.
// Throws Error{io_failed} where the text is no input. Keys that it does not say are no differences.
std::vector<Difference> differences(const std::string& former, const Config& now);

// A key's value in the resolved input `former`, on one line as the input file has it; "" where it has none. Throws as `differences`.
std::string former_value(const std::string& former, const std::string& key);

// Whether `former` says the model alone, as the checkpoint of an import does (exchange/exchange.hpp), which no run has saved.
bool of_model_only(const std::string& former);

// Whether the resolved input `former` has no adapters (model.lora).
bool without_adapters(const std::string& former);

}  // namespace quadrille

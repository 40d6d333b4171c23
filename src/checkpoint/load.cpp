// From a checkpoint's file into the tiers of a run.
#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/transfer.hpp"
#include "comm/world.hpp"

#include <algorithm>

namespace quadrille {
namespace {

// A dataset and where its values go: a parameter's once to masters and once to the weights beside them.
struct Targets {
    std::vector<StateTensor> tensors;
    std::vector<StateKind> into;  // by tensor
};

// What of the model's state the checkpoint has; `loaded` gets what it is without.
Targets targets_of(const Collectives& ranks, const Checkpoint& checkpoint, const Program& training, Loaded& loaded) {
    Targets targets;
    const auto add = [&](const StateTensor& t, const StoredTensor& stored, StateKind into) {
        targets.tensors.push_back({stored, t.parameter, t.what});
        targets.into.push_back(into);
    };
    for (const StateTensor& t : state_tensors(ranks, training)) {
        const std::string& name = training.parameters[static_cast<std::size_t>(t.parameter)].name;
        const StoredTensor* stored = checkpoint.find(t.stored.path);
        if (stored && stored->shape != t.stored.shape)
            throw SharedError(Exit::refused, fmt::format("{}: {} is of another shape than this model's", checkpoint.file().string(), t.stored.path));
        if (stored) add(t, *stored, t.what);
        else if (t.what == StateKind::master) loaded.fresh_parameters.push_back(name);
        else if (t.what == StateKind::m) loaded.fresh_moments.push_back(name);
        if (stored && t.what == StateKind::master) add(t, *stored, StateKind::weight);
    }
    constexpr std::string_view parameters = "/parameters/";
    for (const StoredTensor& t : checkpoint.tensors) {
        if (!t.path.starts_with(parameters)) continue;
        const std::string name = t.path.substr(parameters.size());
        const auto same = [&](const Parameter& p) { return p.name == name; };
        if (std::none_of(training.parameters.begin(), training.parameters.end(), same)) loaded.unused.push_back(name);
    }
    return targets;
}

}  // namespace

Loaded load(const Collectives& ranks, const Checkpoint& checkpoint, const Program& training, const Coordinate& at, Arena& arena,
            const LoadSettings& settings) {
    const double begin = now();
    Loaded loaded;
    together(ranks, [&] { check_model(checkpoint, training); });
    const Targets targets = targets_of(ranks, checkpoint, training, loaded);
    const auto pieces = [&](std::size_t t) {
        const StateTensor& tensor = targets.tensors[t];
        // Where a program has no masters, its weights are loaded as such, and not once more.
        if (targets.into[t] == StateKind::weight && !has_state(training, tensor.parameter, StateKind::master)) return Pieces();
        return holding_of(training, at, arena, tensor.parameter, targets.into[t]).pieces;
    };
    std::vector<std::int64_t> counts;
    for (std::size_t t = 0; t < targets.tensors.size(); ++t) counts.push_back(total(pieces(t)));
    const Passage passage(free_between_steps(training, arena));
    const std::int64_t most = std::max<std::int64_t>(1, settings.most_bytes / static_cast<std::int64_t>(sizeof(float)));
    const Rounds rounds = rounds_of(ranks, counts, std::min(most, passage.capacity()));
    together(ranks, [&] {
        read_tensors(ranks, checkpoint.file(), settings.hints, targets.tensors, rounds, pieces, passage,
                     [&](const float* values, const Pieces& part) { scatter(values, part, arena, passage); });
    });
    for (const StoredTensor& t : checkpoint.tensors) loaded.bytes += t.bytes;
    loaded.seconds = now() - begin;
    return loaded;
}

}  // namespace quadrille

// From a checkpoint's file into the tiers of a run.
//
// Of a sum that has yet to be made the file has the terms of so many ranks, and this run may have as many, fewer or more: its ranks share them in
// their order, each adds up those that it gets, and whoever gets none begins with zero. So the sum of all is what it was.
#include "base/error.hpp"
#include "base/rounding.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/transfer.hpp"
#include "comm/world.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace quadrille {
namespace {

// A dataset and where its values go: a parameter's once to masters and once to the weights beside them, of terms one after the other to each rank.
struct Targets {
    std::vector<StateTensor> tensors;  // as stored
    std::vector<StateKind> into;       // by tensor
    std::vector<std::int64_t> number;  // by tensor, of terms: the how manieth of those that a rank gets
};

class Chooser {
  public:
    Chooser(const Checkpoint& checkpoint, const Program& training, Loaded& loaded) : checkpoint_(checkpoint), training_(training), loaded_(loaded) {
        for (const StoredTensor& t : checkpoint.tensors) stored_[t.path] = &t;
    }

    // What of the model's state the checkpoint has; `loaded` gets what it is without, and what it has in vain.
    Targets run(const std::vector<StateTensor>& all) {
        for (const StateTensor& t : all) choose(t);
        std::unordered_set<std::string_view> names, paths;
        for (const Parameter& p : training_.parameters) names.insert(p.name);
        for (const StateTensor& t : all) paths.insert(t.stored.path);
        for (const StoredTensor& t : checkpoint_.tensors) {
            const auto named = [&](StateKind what) -> std::optional<std::string> {
                const std::string group = dataset_path("", what);
                return t.path.starts_with(group) ? std::optional(t.path.substr(group.size())) : std::nullopt;
            };
            if (const auto name = named(StateKind::master); name && !names.contains(*name)) loaded_.unused.push_back(*name);
            if (const auto name = named(StateKind::residual); name && !paths.contains(t.path)) loaded_.lost_residuals.push_back(*name);
            if (named(StateKind::stale) && !paths.contains(t.path)) loaded_.lost_stale = true;
        }
        return std::move(targets_);
    }

  private:
    void choose(const StateTensor& t) {
        const auto it = stored_.find(t.stored.path);
        if (it == stored_.end()) return missing(t);
        const StoredTensor& stored = *it->second;
        const std::size_t own = is_term(t.what) ? 1 : 0;  // dims before the parameter's
        if (stored.shape.size() != t.stored.shape.size() || !std::equal(stored.shape.begin() + static_cast<std::ptrdiff_t>(own), stored.shape.end(),
                                                                        t.stored.shape.begin() + static_cast<std::ptrdiff_t>(own)))
            throw SharedError(Exit::refused, fmt::format("{}: {} is of another shape than this model's", checkpoint_.file().string(), t.stored.path));
        if (own) return add_terms(t, stored);
        add(t, stored, t.what);
        if (t.what == StateKind::master) add(t, stored, StateKind::weight);
    }

    void missing(const StateTensor& t) {
        const std::string& name = training_.parameters[static_cast<std::size_t>(t.parameter)].name;
        if (t.what == StateKind::master) loaded_.fresh_parameters.push_back(name);
        if (t.what == StateKind::m) loaded_.fresh_moments.push_back(name);
        if (t.what == StateKind::residual) loaded_.fresh_residuals.push_back(name);
        if (t.what == StateKind::stale) loaded_.fresh_stale = true;
    }

    void add_terms(const StateTensor& t, const StoredTensor& stored) {
        const std::int64_t there = stored.shape[0], here = t.stored.shape[0];
        if (there != here) loaded_.terms = {there, here};
        for (std::int64_t k = 0; k < ceil_div(there, here); ++k) add(t, stored, t.what, k);
    }

    void add(const StateTensor& t, const StoredTensor& stored, StateKind into, std::int64_t number = 0) {
        targets_.tensors.push_back({stored, t.parameter, t.what});
        targets_.into.push_back(into);
        targets_.number.push_back(number);
    }

    const Checkpoint& checkpoint_;
    const Program& training_;
    Loaded& loaded_;
    std::unordered_map<std::string_view, const StoredTensor*> stored_;
    Targets targets_;
};

// Where this rank's term number k of the stored ones goes; nowhere if it gets fewer. The first takes the place of what is there.
Pieces of_term(Holding held, const StoredTensor& stored, std::int64_t k) {
    if (held.pieces.empty()) return {};
    const Extent mine = equal_cut(stored.shape[0], held.terms, held.term);
    if (k >= mine.count) return {};
    std::int64_t elements = 1;
    for (std::size_t d = 1; d < stored.shape.size(); ++d) elements *= stored.shape[d];
    for (Piece& piece : held.pieces) {
        piece.element += (mine.offset + k - held.term) * elements;
        piece.adds = k > 0;
    }
    return std::move(held.pieces);
}

}  // namespace

Loaded load(const Collectives& ranks, const Checkpoint& checkpoint, const Program& training, const Coordinate& at, Arena& arena,
            const LoadSettings& settings) {
    const double begin = now();
    Loaded loaded;
    together(ranks, [&] { check_model(checkpoint, training); });
    const Holdings held(training, at, arena);
    const Targets targets = Chooser(checkpoint, training, loaded).run(state_tensors(ranks, held));
    const auto pieces = [&](std::size_t t) {
        const StateTensor& tensor = targets.tensors[t];
        // Where a program has no masters, its weights are loaded as such, and not once more.
        if (targets.into[t] == StateKind::weight && !held.has(tensor.parameter, StateKind::master)) return Pieces();
        Holding mine = held.of(tensor.parameter, targets.into[t]);
        return is_term(tensor.what) ? of_term(std::move(mine), tensor.stored, targets.number[t]) : std::move(mine.pieces);
    };
    std::vector<std::int64_t> counts;
    for (std::size_t t = 0; t < targets.tensors.size(); ++t) counts.push_back(total(pieces(t)));
    const Passage passage(free_between_steps(training, arena));
    const std::int64_t most = std::max<std::int64_t>(1, settings.most_bytes / static_cast<std::int64_t>(sizeof(float)));
    const Rounds rounds = rounds_of(ranks, targets.tensors, counts, std::min(most, passage.capacity()));
    CollectiveFile file(ranks, checkpoint.file(), PlainFile::Open::read, settings.hints);
    together(ranks, [&] {
        read_tensors(ranks, file, targets.tensors, rounds, pieces, passage,
                     [&](const float* values, const Pieces& part) { scatter(values, part, arena, passage); });
    });
    for (const StoredTensor& t : checkpoint.tensors) loaded.bytes += t.bytes;
    loaded.seconds = now() - begin;
    return loaded;
}

}  // namespace quadrille

// Sums that are yet to be made: every rank's residual and stale gradients come back to it on a grid like the one that saved them, and on any other
// the sum of all is what it was.
#include "checkpoint/state_tensors.hpp"
#include "checkpoint_fixture.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

struct Case {
    std::string name;
    Config config;
};

Config on(int dp, int tp, int pp, int sp, int stage, int shard = 0, OffloadTo optimizer = OffloadTo::none) {
    Config model = tiny(false);
    model.model.num_layers = 2;
    Config c = on_grid(model, dp, tp, pp, sp);
    c.sharding.zero_stage = stage;
    c.sharding.shard_size = shard;
    c.offload.optimizer = optimizer;
    c.offload.block_size = 4096;
    c.offload.queue_depth = 2;
    return c;
}

Config packed(Config c, CompressionMethod method = CompressionMethod::topk, std::vector<std::string> exclude = {"embedding", "head"}) {
    c.compression = {method, 0.05, 4, true, std::move(exclude)};
    return c;
}

Config stale(Config c) {
    c.comm.staleness = 1;
    return c;
}

// Those of at most as many ranks as the world has.
std::vector<Case> fitting(std::vector<Case> all) {
    std::erase_if(all, [](const Case& k) { return ranks_of(k.config) > world().size(); });
    return all;
}

std::vector<Case> with_residuals() {
    using M = CompressionMethod;
    return fitting({
        {"dp2", packed(on(2, 1, 1, 1, 0))},
        {"dp2 zero3 nvme", packed(on(2, 1, 1, 1, 3, 0, OffloadTo::nvme), M::qsgd)},
        {"dp4 zero2", packed(on(4, 1, 1, 1, 2))},
        {"dp4 copies of two", packed(on(4, 1, 1, 1, 1, 2, OffloadTo::cpu))},
        {"dp4 four copies", packed(on(4, 1, 1, 1, 0, 1), M::fp16)},
        {"dp2 sp2", packed(on(2, 1, 1, 2, 0))},
        {"dp2 pp2, a tied table too", packed(on(2, 1, 2, 1, 0), M::qsgd, {})},
        {"dp2 tp2", packed(on(2, 2, 1, 1, 0), M::bf16, {})},
    });
}

std::vector<Case> with_stale() {
    return fitting({
        {"1", stale(on(1, 1, 1, 1, 0))},
        {"dp2", stale(on(2, 1, 1, 1, 0))},
        {"pp2", stale(on(1, 1, 2, 1, 0))},
        {"tp2", stale(on(1, 2, 1, 1, 0))},
        {"dp4 zero1", stale(on(4, 1, 1, 1, 1, 0, OffloadTo::nvme))},
        {"dp2 sp2 zero1", stale(on(2, 1, 1, 2, 1))},
        {"dp2 pp2", stale(on(2, 1, 2, 1, 0))},
    });
}

// `from` saves its state, at once or behind training.
void save(const Config& from, const std::filesystem::path& directory, const std::string& nvme, bool behind) {
    const FirstRanks job(ranks_of(from));
    if (!job.has_this()) return;
    StateOnGrid state(from, job.get().rank(), nvme);
    state.fill();
    SaveSettings settings;
    settings.directory = directory;
    settings.most_bytes = 2048;
    settings.least_direct = 1;
    settings.asynchronous = behind;
    settings.fail_alone = [](const std::exception&) { MPI_Abort(MPI_COMM_WORLD, 1); };
    Saver saver(job.get(), settings, state.program(), state.at(), state.arena(), state.snapshot());
    REQUIRE(saver.save(point_at(3)));
    saver.finish();
    for (const Saved& saved : saver.saved()) CHECK(saved.bytes == saver.bytes());
    CHECK(state.wrong() == 0);
}

// An element of what a rank gets of the terms in the file, which are functions of their place there: added up in fp32, in their order.
float given_to(const std::string& parameter, StateKind what, const Extent& terms, std::int64_t elements, std::int64_t element) {
    float sum = 0;
    for (std::int64_t k = 0; k < terms.count; ++k) {
        const float x = StateOnGrid::value(parameter, what, (terms.offset + k) * elements + element);
        sum = k == 0 ? x : sum + x;
    }
    return sum;
}

struct Seen {
    std::int64_t wrong = 0;  // elements
    double sum = 0;          // of this rank's share
};

std::int64_t product(const std::vector<std::int64_t>& shape) {
    std::int64_t n = 1;
    for (const std::int64_t s : shape) n *= s;
    return n;
}

Seen look(StateOnGrid& state, const Checkpoint& checkpoint) {
    Seen seen;
    state.for_each_holding([&](const Parameter& p, StateKind what, const Holding& held) {
        if (!is_term(what)) return;
        const StoredTensor* stored = checkpoint.find(dataset_path(p.name, what));
        if (held.pieces.empty() || !stored) return;
        const std::int64_t elements = product(p.shape);
        const Extent mine = equal_cut(stored->shape[0], held.terms, held.term);
        const std::vector<float> found = state.values_of(held.pieces);
        std::size_t i = 0;
        for (const Piece& piece : held.pieces)
            for (std::int64_t k = 0; k < piece.count; ++k, ++i)
                seen.wrong += found[i] != given_to(p.name, what, mine, elements, piece.element + k - held.term * elements);
        for (const float x : state.values_of(share_of(held))) seen.sum += x;
    });
    return seen;
}

// Of all terms in the file, and how many values they are, none of which is nearer to zero than 0.5.
std::pair<double, std::int64_t> stored_sum(const Checkpoint& checkpoint, const Program& program) {
    double sum = 0;
    std::int64_t values = 0;
    for (const Parameter& p : program.parameters)
        for (const StateKind what : {StateKind::residual, StateKind::stale})
            if (const StoredTensor* t = checkpoint.find(dataset_path(p.name, what))) {
                for (std::int64_t i = 0; i < product(t->shape); ++i) sum += StateOnGrid::value(p.name, what, i);
                values += product(t->shape);
            }
    return {sum, values};
}

// What `to` has after it has loaded what lies in `directory`.
void load_and_look(const Config& to, const std::filesystem::path& directory, const std::string& nvme) {
    const FirstRanks job(ranks_of(to));
    if (!job.has_this()) return;
    StateOnGrid state(to, job.get().rank(), nvme);
    const Checkpoint found = *open_checkpoint(job.get(), directory).checkpoint;
    LoadSettings settings;
    settings.most_bytes = 3000;
    const Loaded told = load(job.get(), found, state.program(), state.at(), state.arena(), settings);
    CHECK(told.fresh_stale == false);
    Seen seen = look(state, found);
    CHECK(seen.wrong == 0);
    double sum = 0;
    mpi_check(MPI_Allreduce(&seen.sum, &sum, 1, MPI_DOUBLE, MPI_SUM, job.get().comm()));
    // Units that are compressed on one side alone are the reader's to tell of.
    if (!told.fresh_residuals.empty() || !told.lost_residuals.empty()) return;
    const auto [stored, values] = stored_sum(found, state.program());
    REQUIRE(values > 0);
    CHECK(std::abs(sum - stored) < 1e-7 * static_cast<double>(values));  // what additions in fp32 may round off
}

void every_pair(const std::vector<Case>& all) {
    const TemporaryDirectory nvme;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (ranks_of(all[i].config) < world().size()) continue;  // smaller worlds save those
        const SharedDirectory directory;
        CAPTURE(all[i].name);
        save(all[i].config, directory.path(), nvme.path(), i % 2 == 1);
        world().barrier();
        for (const Case& to : all) {
            CAPTURE(to.name);
            load_and_look(to.config, directory.path(), nvme.path());
        }
        world().barrier();
    }
}

}  // namespace

TEST_CASE("residuals: as they were on a grid of as many terms, the same sum on any other") { every_pair(with_residuals()); }

TEST_CASE("stale gradients: as they were on a grid of as many terms, the same sum on any other") { every_pair(with_stale()); }

TEST_CASE("each rank that exchanges packets has a term of its own; copies of a term share the work") {
    const TemporaryDirectory nvme;
    for (const Case& k : with_residuals()) {
        CAPTURE(k.name);
        const FirstRanks job(ranks_of(k.config));
        if (!job.has_this()) continue;
        StateOnGrid state(k.config, job.get().rank(), nvme.path());
        const Grid& grid = state.program().grid();
        const bool copies = grid.extent(Axis::replica) > 1;
        state.for_each_holding([&](const Parameter& p, StateKind what, const Holding& held) {
            if (what != StateKind::residual || held.pieces.empty()) return;
            const bool both_ends = p.unit == "tied" && grid.extent(Axis::pp) > 1;
            CHECK(held.terms == (copies ? grid.extent(Axis::replica) : grid.size(zero_axes)) * (both_ends ? 2 : 1));
            CHECK(held.copies <= grid.size(tensor_axes));
        });
    }
}

TEST_CASE("what a program has no place for, and what a checkpoint is without, is told") {
    if (world().size() < 2) return;
    const TemporaryDirectory nvme;
    const Config plain = on(2, 1, 1, 1, 0), compressed = packed(plain), late = stale(plain);
    const auto told = [&](const Config& from, const Config& to) {
        const SharedDirectory directory;
        save(from, directory.path(), nvme.path(), false);
        world().barrier();
        const FirstRanks job(ranks_of(to));
        Loaded loaded;
        if (job.has_this()) {
            StateOnGrid state(to, job.get().rank(), nvme.path());
            const Found found = open_checkpoint(job.get(), directory.path());
            loaded = load(job.get(), *found.checkpoint, state.program(), state.at(), state.arena());
        }
        return loaded;
    };
    const Loaded dropped = told(compressed, plain), fresh = told(plain, compressed), as_is = told(compressed, compressed);
    const Loaded lost = told(late, plain), none = told(plain, late);
    const Loaded fewer = world().size() < 4 ? Loaded{} : told(packed(on(4, 1, 1, 1, 0)), compressed);
    if (world().rank() >= 2) return;
    CHECK(!dropped.lost_residuals.empty());
    CHECK(dropped.fresh_residuals.empty());
    const auto sorted = [](std::vector<std::string> names) {
        std::sort(names.begin(), names.end());
        return names;
    };
    CHECK(sorted(fresh.fresh_residuals) == sorted(dropped.lost_residuals));
    CHECK(as_is.lost_residuals.empty());
    CHECK(as_is.fresh_residuals.empty());
    CHECK(as_is.terms.there == 0);
    CHECK((lost.lost_stale && !lost.fresh_stale));
    CHECK((none.fresh_stale && !none.lost_stale));
    if (world().size() >= 4) CHECK((fewer.terms.there == 4 && fewer.terms.here == 2));
}

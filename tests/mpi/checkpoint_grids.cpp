// What one grid, stage, precision and offload has saved, any other loads, bit by bit.
#include "checkpoint_fixture.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

struct Case {
    const char* name;
    Config config;
};

Config with(Config c, int stage, Precision precision = Precision::fp32, OffloadTo optimizer = OffloadTo::none,
            OffloadTo parameters = OffloadTo::none) {
    c.sharding.zero_stage = stage;
    c.train.precision = precision;
    c.offload.optimizer = optimizer;
    c.offload.parameters = parameters;
    c.offload.block_size = 4096;
    c.offload.queue_depth = 2;
    return c;
}

// Grids of at most as many ranks as the world has. 1024 elements are a block of ZeRO, and this model's units have few: most slices of dp 4 are empty.
std::vector<Case> cases(const Config& model) {
    Config c = model;
    c.model.num_layers = 2;
    using P = Precision;
    using O = OffloadTo;
    const auto on = [&](int dp, int tp, int pp, int sp) { return on_grid(c, dp, tp, pp, sp); };
    Config pairs = with(on(4, 1, 1, 1), 3);
    pairs.sharding.shard_size = 2;
    std::vector<Case> all = {
        {"1", with(on(1, 1, 1, 1), 0)},
        {"1 bf16", with(on(1, 1, 1, 1), 0, P::bf16)},
        {"1 fp16 optimizer cpu", with(on(1, 1, 1, 1), 0, P::fp16, O::cpu)},
        {"1 bf16 optimizer and parameters nvme", with(on(1, 1, 1, 1), 0, P::bf16, O::nvme, O::nvme)},
        {"dp2 zero1", with(on(2, 1, 1, 1), 1)},
        {"dp2 zero2 bf16", with(on(2, 1, 1, 1), 2, P::bf16)},
        {"tp2", with(on(1, 2, 1, 1), 0)},
        {"pp2 bf16", with(on(1, 1, 2, 1), 0, P::bf16)},
        {"sp2 zero3", with(on(1, 1, 1, 2), 3)},
        {"dp2 zero3 optimizer nvme", with(on(2, 1, 1, 1), 3, P::fp32, O::nvme)},
        {"dp4 zero0", with(on(4, 1, 1, 1), 0)},
        {"dp4 zero3 bf16", with(on(4, 1, 1, 1), 3, P::bf16)},
        {"dp4 zero3 pairs", pairs},
        {"tp4 bf16", with(on(1, 4, 1, 1), 0, P::bf16)},
        {"dp2 pp2 zero2 nvme", with(on(2, 1, 2, 1), 2, P::bf16, O::nvme, O::cpu)},
        {"tp2 sp2 zero1", with(on(1, 2, 1, 2), 1)},
    };
    std::erase_if(all, [](const Case& k) { return ranks_of(k.config) > world().size(); });
    return all;
}

// Every third of those of all ranks, for what does not hang on the grid.
std::vector<Case> some_cases(const Config& c) {
    std::vector<Case> all = cases(c), some;
    std::erase_if(all, [](const Case& k) { return ranks_of(k.config) < world().size(); });
    for (std::size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
    return some;
}

// Elements that are wrong on any rank after `to` has loaded what lies in `directory`; 0 on ranks that are not in it.
template <class Fresh>
std::int64_t wrong_after_load(const Config& to, const std::filesystem::path& directory, const std::string& nvme, Fresh fresh, Loaded* told = nullptr,
                              bool whole_base = false) {
    const FirstRanks job(ranks_of(to));
    if (!job.has_this()) return 0;
    StateOnGrid state(to, job.get().rank(), nvme);
    const Found found = open_checkpoint(job.get(), directory);
    CHECK(found.passed_over.empty());
    LoadSettings settings;
    settings.most_bytes = 3000;
    const Loaded loaded = load(job.get(), *found.checkpoint, state.program(), state.at(), state.arena(), settings);
    if (told) *told = loaded;
    state.whole_base = whole_base;
    return state.wrong(fresh);
}

// `from` saves a state to the directory, as step 7; straight to the disk, or all of it through MPI-IO.
void save(const Config& from, const std::filesystem::path& directory, const std::string& nvme, bool behind = false, bool straight = true) {
    const FirstRanks job(ranks_of(from));
    if (!job.has_this()) return;
    StateOnGrid state(from, job.get().rank(), nvme);
    state.fill();
    REQUIRE(state.wrong() == 0);
    SaveSettings settings;
    settings.directory = directory;
    settings.most_bytes = 2048;
    settings.least_direct = 1;
    if (!straight) settings.hints = {{"romio_ds_write", "disable"}, {"no such hint", "harmless"}};
    settings.asynchronous = behind;
    settings.fail_alone = [](const std::exception&) { MPI_Abort(MPI_COMM_WORLD, 1); };
    Saver saver(job.get(), settings, state.program(), state.at(), state.arena(), state.snapshot());
    CHECK(saver.save(point_at(7)));
    saver.finish();
    const auto saved = saver.saved();
    REQUIRE(saved.size() == 1);
    CHECK(saved[0].folder == directory / "step-00000007");
    CHECK(state.wrong() == 0);  // saving changes nothing
}

const auto nothing_fresh = [](const Parameter&, StateKind) { return false; };

void many_pairs(const Config& model) {
    const TemporaryDirectory nvme;
    const std::vector<Case> all = cases(model);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (ranks_of(all[i].config) < world().size()) continue;  // smaller worlds save those
        if (QUADRILLE_SAMPLED && i % 2 == (model.model.activation == Activation::swiglu)) continue;
        const SharedDirectory directory;
        save(all[i].config, directory.path(), nvme.path(), i % 4 > 1, i % 3 != 0);  // half of them behind training, a third through MPI-IO
        world().barrier();
        for (std::size_t j = 0; j < all.size(); ++j) {
            if (j != (i + 1) % all.size() && j != (5 * i + 3) % all.size()) continue;
            CAPTURE(all[i].name);
            CAPTURE(all[j].name);
            CHECK(wrong_after_load(all[j].config, directory.path(), nvme.path(), nothing_fresh) == 0);
        }
    }
}

}  // namespace

TEST_CASE("GPT-2 with a tied table and a padded vocabulary: from any grid to any other") { many_pairs(tiny(false)); }
TEST_CASE("Llama with fewer key-value heads than tensor ranks: from any grid to any other") { many_pairs(tiny(true)); }

TEST_CASE("frozen weights and adapters; adapters start afresh on a base without them, and a base leaves them out") {
    const TemporaryDirectory nvme;
    for (const Case& k : some_cases(tiny(false))) {
        CAPTURE(k.name);
        Config lora = k.config;
        lora.lora = {3, 6, {"all"}};
        const SharedDirectory with_adapters, without;
        save(lora, with_adapters.path(), nvme.path());
        save(k.config, without.path(), nvme.path());
        world().barrier();
        CHECK(wrong_after_load(lora, with_adapters.path(), nvme.path(), nothing_fresh) == 0);
        Loaded told;
        const auto is_adapter = [](const Parameter& p, StateKind) { return p.adapter; };
        CHECK(wrong_after_load(lora, without.path(), nvme.path(), is_adapter, &told, true) == 0);
        if (world().rank() == 0) {
            CHECK(!told.fresh_parameters.empty());
            CHECK(told.fresh_parameters.size() == told.fresh_moments.size());
            for (const std::string& name : told.fresh_parameters) CHECK(name.find(".lora_") != std::string::npos);
        }
    }
}

TEST_CASE("moments of another optimizer are told, and stay as they were made") {
    const TemporaryDirectory nvme;
    for (const Case& k : some_cases(tiny(false))) {
        Config sgd = k.config;
        sgd.optimizer.type = OptimizerType::sgd;
        const SharedDirectory directory;
        save(sgd, directory.path(), nvme.path());
        world().barrier();
        Loaded told;
        const auto is_moment = [](const Parameter&, StateKind what) { return what == StateKind::m || what == StateKind::v; };
        CHECK(wrong_after_load(k.config, directory.path(), nvme.path(), is_moment, &told) == 0);
        if (world().rank() == 0) CHECK(!told.fresh_moments.empty());
    }
}

TEST_CASE("another model is refused by name and numbers, on all ranks") {
    const SharedDirectory directory;
    const Config c = on_grid(tiny(false), world().size(), 1, 1, 1);
    save(c, directory.path(), "");
    world().barrier();
    Config wide = c;
    wide.model.vocab_size = 41;
    Config deep = c;
    deep.model.num_layers = 5;
    for (const Config& other : {wide, deep}) {
        StateOnGrid state(other, world().rank(), "");
        const Found found = open_checkpoint(world(), directory.path());
        std::string said;
        try {
            load(world(), *found.checkpoint, state.program(), state.at(), state.arena());
        } catch (const SharedError& e) {
            said = e.what();
            CHECK(e.exit() == Exit::refused);
        }
        CHECK(said.find("another model") != std::string::npos);
        if (&other != &deep && other.model.vocab_size == 41) {
            CHECK(said.find("[37, 24]") != std::string::npos);
            CHECK(said.find("[41, 24]") != std::string::npos);
        }
    }
}

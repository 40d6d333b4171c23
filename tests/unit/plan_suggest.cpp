// Advice: what is offered where a step does not fit, in which order, and what the plan says of the homes of the training state.
#include "base/error.hpp"
#include "config/load.hpp"
#include "plan/plan.hpp"

#include <doctest.h>

#include <algorithm>
#include <iterator>
#include <sstream>

using namespace quadrille;

namespace {

// GPT-2 124M on so many ranks, with the overrides given and more.
struct Job124m {
    std::vector<std::string> given;
    int ranks = 4;

    Config load(std::vector<std::string> more = {}) const {
        Job job;
        job.ranks = ranks;
        const auto key = [](const std::string& s) { return s.substr(0, s.find('=')); };
        std::vector<std::string> kept = given;
        kept.push_back("train.global_batch_size=auto");
        for (const std::string& m : more) std::erase_if(kept, [&](const std::string& g) { return key(g) == key(m); });
        more.insert(more.end(), kept.begin(), kept.end());
        return load_config(std::string(QUADRILLE_SOURCE) + "/inputs/gpt2-124m.yaml", more, job);
    }
    std::int64_t peak(const std::vector<std::string>& more = {}) const {
        std::int64_t most = 0;
        for (const Program& p : compile(load(more), Purpose::training, {}).programs) most = std::max(most, p.peaks[0].arena);
        return most;
    }
    Plan plan(std::int64_t limit) const {
        Config c = load();
        c.device.memory_limit = limit;
        return make_plan(c, {}, [this](const std::vector<std::string>& more) { return load(more); });
    }
};

const Suggestion* find(const Plan& p, const std::string& change) {
    const auto it = std::find_if(p.suggestions.begin(), p.suggestions.end(), [&](const Suggestion& s) { return s.change == change; });
    return it == p.suggestions.end() ? nullptr : &*it;
}

bool other_numbers(const Suggestion& s) {
    return s.change.find("precision") != std::string::npos || s.change.find("gradient_dtype") != std::string::npos;
}

void check_order(const Plan& p, std::int64_t limit) {
    for (std::size_t i = 0; i < p.suggestions.size(); ++i) {
        const Suggestion& s = p.suggestions[i];
        CAPTURE(s.change);
        CHECK(s.peak_bytes[0] <= limit);
        CHECK(s.peak_bytes[0] > 0);
        CHECK(s.cost > 0);
        if (i > 0) CHECK((other_numbers(s) != other_numbers(p.suggestions[i - 1]) ? other_numbers(s) : s.cost >= p.suggestions[i - 1].cost));
        CHECK(text(p).find(s.change + "  # device peak ") != std::string::npos);
    }
}

}  // namespace

TEST_CASE("finer shards are offered where they fit, the cheapest first") {
    const Job124m input{{"train.micro_batch_size=1", "train.gradient_accumulation_steps=4", "model.seq_length=64"}};
    const std::int64_t limit = input.peak({"sharding.zero_stage=1"});
    CHECK(limit < input.peak());
    const Plan p = input.plan(limit);
    CHECK(!p.fits);
    check_order(p, limit);
    REQUIRE(find(p, "sharding.zero_stage=1"));
    CHECK(find(p, "sharding.zero_stage=1")->cost == doctest::Approx(1).epsilon(1e-3));  // the same bytes, as scatter and gather
    if (const Suggestion* more = find(p, "sharding.zero_stage=3")) CHECK(more->cost > find(p, "sharding.zero_stage=1")->cost);
    CHECK(p.suggestions.size() >= 3);
    CHECK(json(p).find("\"cost\": ") != std::string::npos);
}

TEST_CASE("combinations where no change fits by itself, and nothing in them that does not help") {
    const Job124m input{{"train.micro_batch_size=2", "train.gradient_accumulation_steps=2", "device.host_memory_limit=1KiB"}};
    const std::int64_t limit = input.peak({"sharding.zero_stage=3", "recompute.granularity=full", "train.micro_batch_size=1",
                                           "train.gradient_accumulation_steps=4"});
    const Plan p = input.plan(limit);
    check_order(p, limit);
    CHECK(!p.suggestions.empty());
    bool sharded = false;
    for (const Suggestion& s : p.suggestions) sharded = sharded || s.change.find("sharding.zero_stage=3") != std::string::npos;
    CHECK(sharded);
    const std::vector<std::string> small = {"train.micro_batch_size=2", "train.gradient_accumulation_steps=2", "device.host_memory_limit=1KiB"};
    const Plan alone = Job124m{small, 1}.plan(limit);  // nobody to share with
    for (const Suggestion& s : alone.suggestions) CHECK(s.change.find("zero_stage") == std::string::npos);
}

TEST_CASE("nothing of what is offered can be left out, and the optimizer goes with one cheap change before all else goes") {
    const std::vector<std::string> batch = {"train.micro_batch_size=2", "train.gradient_accumulation_steps=8"};
    const Job124m input{{"model.num_layers=4", "model.hidden_size=512", "model.num_attention_heads=4", "model.vocab_size=256", "model.seq_length=64",
                         batch[0], batch[1]}, 1};
    const std::string smaller = "train.micro_batch_size=1 train.gradient_accumulation_steps=16", optimizer = "offload.optimizer=cpu";
    const auto with = [&](std::vector<std::string> more) { return input.peak(more); };
    const std::int64_t both = with({"train.micro_batch_size=1", "train.gradient_accumulation_steps=16", optimizer}), alone = with({optimizer});
    REQUIRE(both < alone);
    const Plan p = input.plan(both);
    check_order(p, both);
    CHECK(find(p, smaller + " " + optimizer));
    const std::int64_t tiers = with({optimizer, "offload.parameters=cpu"});
    REQUIRE(tiers < both);
    const Plan q = input.plan(tiers);
    check_order(q, tiers);
    REQUIRE(find(q, optimizer + " offload.parameters=cpu"));
    for (const Plan* plan : {&p, &q})
        for (const Suggestion& s : plan->suggestions) {
            CAPTURE(s.change);
            std::istringstream words(s.change);
            std::vector<std::string> parts{std::istream_iterator<std::string>(words), {}};
            const auto batch_size = [](const std::string& word) { return word.starts_with("train."); };
            for (const std::string& part : parts) {
                std::vector<std::string> rest;
                for (const std::string& other : parts)
                    if (other != part && !(batch_size(part) && batch_size(other))) rest.push_back(other);
                CHECK(with(rest) > (plan == &p ? both : tiers));
            }
        }
}

TEST_CASE("the advice never changes the batch") {
    const std::int64_t batch = 8;
    for (const int ranks : {1, 4}) {
        const std::string passes = fmt::format("train.gradient_accumulation_steps={}", batch / 2 / ranks);
        const Job124m input{{"train.micro_batch_size=2", passes, "device.host_memory_limit=1KiB"}, ranks};
        for (const Suggestion& s : input.plan(input.peak() / 2).suggestions) {
            CAPTURE(s.change);
            std::istringstream words(s.change);
            CHECK(input.load({std::istream_iterator<std::string>(words), {}}).train.global_batch_size == batch);
        }
    }
}

TEST_CASE("the plan says where the training state lives") {
    const auto homes = [](std::vector<std::string> given, int ranks) {
        const Plan p = Job124m{std::move(given), ranks}.plan(0);
        CHECK(text(p).find("\nhomes       " + p.homes + "\n") != std::string::npos);
        return p.homes;
    };
    CHECK(homes({}, 1) == "weights whole, gradients whole, optimizer state whole, on 1 rank (dp 1 x sp 1)");
    CHECK(homes({"sharding.zero_stage=1"}, 4) == "weights whole, gradients whole, optimizer state 1/4, on 4 ranks (dp 4 x sp 1)");
    CHECK(homes({"sharding.zero_stage=2", "grid.sp=2"}, 4) == "weights whole, gradients 1/4, optimizer state 1/4, on 4 ranks (dp 2 x sp 2)");
    CHECK(homes({"sharding.zero_stage=3", "sharding.shard_size=2"}, 8) ==
          "weights 1/2, gradients 1/2, optimizer state 1/2, on 2 ranks (dp 2 x sp 1); 4 copies over dp");
}

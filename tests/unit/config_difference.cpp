// What a resume tells of two inputs, and which of it is refused.
#include "config_fixture.hpp"

#include "config/difference.hpp"

using namespace quadrille;

namespace {

const Difference* find(const std::vector<Difference>& all, const std::string& key) {
    for (const Difference& d : all)
        if (d.key == key) return &d;
    return nullptr;
}

}  // namespace

TEST_CASE_FIXTURE(ConfigFixture, "equal inputs differ in nothing, a machine with other memory neither") {
    const std::string text = "data: {format: synthetic}\n";
    CHECK(differences(to_yaml(load(text)), load(text)).empty());
    job.memory_available = 1 << 30;
    job.planning = false;
    const Config before = load(text);
    job.memory_available = 1 << 29;
    const Config now = load(text);
    REQUIRE(before.device.memory_limit != now.device.memory_limit);
    CHECK(differences(to_yaml(before), now).empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "shapes and meanings of the model must match, all else is the new input's") {
    const std::string former = to_yaml(load("model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 100}\n"
                                            "data: {format: synthetic}\n"));
    const Config now = load("model: {num_layers: 3, hidden_size: 128, num_attention_heads: 4, vocab_size: 101, hidden_dropout: 0.25, "
                            "seq_length: 64}\n"
                            "optimizer: {lr: 1e-2, weight_decay: 0}\ntrain: {seed: 7, global_batch_size: 8}\n"
                            "checkpoint: {hints: {a: b}}\ndata: {train: [/a, /b, /c, /d]}\ngrid: {tp: 2}\n");
    const auto all = differences(former, now);
    for (const char* key : {"model.num_layers", "model.hidden_size", "model.vocab_size", "model.head_dim", "model.ffn_hidden_size",
                            "model.seq_length"}) {
        INFO(key);
        REQUIRE(find(all, key));
        CHECK(find(all, key)->must_match);
    }
    for (const char* key : {"model.hidden_dropout", "optimizer.lr", "optimizer.weight_decay", "train.seed", "train.global_batch_size",
                            "checkpoint.hints", "data.train", "grid.tp"}) {
        INFO(key);
        REQUIRE(find(all, key));
        CHECK_FALSE(find(all, key)->must_match);
    }
    CHECK((find(all, "model.hidden_size")->before == "64" && find(all, "model.hidden_size")->now == "128"));
    CHECK((find(all, "optimizer.lr")->before == "0.0003" && find(all, "optimizer.lr")->now == "0.01"));
    CHECK((find(all, "data.train")->before == "[]" && find(all, "data.train")->now == "[/a, ... /d] (4 in all)"));
    CHECK((find(all, "checkpoint.hints")->before == "{}" && find(all, "checkpoint.hints")->now == "{a: b}"));
    CHECK_FALSE(find(all, "optimizer.beta1"));
}

TEST_CASE_FIXTURE(ConfigFixture, "keys that follow others, or are of a compression that nobody has, are not told beside them") {
    job.ranks = 4;
    const std::string text = "data: {format: synthetic}\ntrain: {global_batch_size: 16}\n";
    const std::string former = to_yaml(load(text + "grid: {tp: 1}\ncomm: {compression: {ratio: 0.5}}\n"));
    const Config now = load("data: {format: synthetic}\ntrain: {global_batch_size: 16, steps: 50}\ngrid: {tp: 2}\n");
    const auto all = differences(former, now);
    CHECK((find(all, "grid.dp") && find(all, "train.steps")));
    CHECK_FALSE((find(all, "sharding.shard_size") || find(all, "optimizer.decay_steps") || find(all, "comm.compression.ratio")));
    const auto own = differences(former, load(text + "sharding: {shard_size: 2}\noptimizer: {decay_steps: 60}\n"
                                                     "comm: {compression: {method: topk}}\n"));
    CHECK((find(own, "sharding.shard_size") && find(own, "optimizer.decay_steps")));
    CHECK((find(own, "comm.compression.method") && find(own, "comm.compression.ratio")));
}

TEST_CASE_FIXTURE(ConfigFixture, "without a table of positions the sequence may grow") {
    const std::string rope = "position_embedding: rope, hidden_size: 64, num_attention_heads: 4";
    const auto all = differences(to_yaml(load("model: {" + rope + "}\n")), load("model: {seq_length: 4096, rotary_base: 5e5, " + rope + "}\n"));
    CHECK(all.size() == 2);
    for (const Difference& d : all) CHECK_FALSE(d.must_match);
}

TEST_CASE_FIXTURE(ConfigFixture, "adapters are of the model; another program's input may lack keys, or have more") {
    const std::string base = to_yaml(load("model: {num_layers: 2}\n"));
    const Config adapted = load("model: {num_layers: 2, lora: {rank: 4}}\n");
    CHECK(without_adapters(base));
    CHECK_FALSE(without_adapters(to_yaml(adapted)));
    CHECK(find(differences(base, adapted), "model.lora.rank")->must_match);
    CHECK(differences("model:\n  num_layers: 5\n  sparkle: 3\n", load("model: {num_layers: 2}\n")).size() == 1);
    CHECK(find(differences("model:\n  activation: sparkling\n", load("model: {}\n")), "model.activation")->before == "sparkling");
    CHECK(former_value(base, "checkpoint.resume") == "auto");
    CHECK_FALSE(of_model_only(base));
    CHECK(former_value(base, "model.sparkle").empty());
    CHECK_THROWS_AS(differences("no input at all", adapted), Error);
    CHECK_THROWS_AS(differences("a: [", adapted), Error);
}

TEST_CASE_FIXTURE(ConfigFixture, "an import says the model alone, and no run is compared") {
    const std::string model = model_section(load("model: {num_layers: 2, norm_eps: 1e-6}\n"));
    CHECK(of_model_only(model));
    CHECK(without_adapters(model));
    const Config run = load("model: {num_layers: 2}\ntrain: {steps: 7, seed: 5}\noptimizer: {lr: 1e-2}\ndata: {format: synthetic}\n");
    const auto all = differences(model, run);
    REQUIRE(all.size() == 1);
    CHECK((all[0].key == "model.norm_eps" && !all[0].must_match));
    CHECK(parse_resolved_model(model).model.num_layers == 2);
    CHECK(model_section(parse_resolved_model(model)) == model);
    CHECK(to_yaml(parse_resolved_model(to_yaml(run))) == to_yaml(run));
    CHECK_THROWS_AS(parse_resolved(model), Error);
    CHECK_THROWS_AS(parse_resolved_model("model:\n  num_layers: 2\n"), Error);
}

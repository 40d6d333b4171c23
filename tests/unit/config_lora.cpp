// Adapters in the input file: what is taken, derived and refused.
#include "config_fixture.hpp"

#include "config/aliases.hpp"

using namespace quadrille;

TEST_CASE_FIXTURE(ConfigFixture, "no adapters: left out, null, or an override that takes them back") {
    CHECK(!load("model: {}\n").lora.on());
    CHECK(!load("model: {lora: null}\n").lora.on());
    CHECK(!load("model: {lora: {rank: 8, alpha: 4}}\n", {"model.lora=null"}).lora.on());
    CHECK(!load("model: {lora: {rank: 8}}\n", {"model.lora.rank=null"}).lora.on());
    CHECK(load("model: {lora: null}\n") == load("model: {}\n"));
    CHECK(load(to_yaml(load("model: {}\n"))).lora == LoraConfig{});
    check_has(to_yaml(load("model: {}\n")), "  lora:\n    rank: null\n    alpha: auto\n");
}

TEST_CASE_FIXTURE(ConfigFixture, "alpha is the rank, targets are all, unless given") {
    const Config c = load("model: {lora: {rank: 8}}\n");
    CHECK(c.lora.rank == 8);
    CHECK(c.lora.alpha == 8);
    CHECK(c.lora.targets == std::vector<std::string>{"all"});
    CHECK(load("model: {}\n", {"model.lora={rank: 8}"}) == c);
    const Config given = load("model: {lora: {rank: 4, alpha: 16, targets: [q, layers.3.mlp.up]}}\n");
    CHECK(given.lora == LoraConfig{4, 16, {"q", "layers.3.mlp.up"}});
    CHECK(load("model: {lora: {rank: 4, alpha: 16, targets: mlp}}\n").lora.targets == std::vector<std::string>{"mlp"});
    CHECK(parse_resolved(to_yaml(given)) == given);
}

TEST_CASE_FIXTURE(ConfigFixture, "what is refused") {
    check_has(refusal("model: {lora: {rank: 0}}\n"), "model.lora.rank: found '0', allowed: an integer 1 to 1048576, or null");
    check_has(refusal("model: {lora: {rank: -4}}\n"), "model.lora.rank: found '-4'");
    check_has(refusal("model: {lora: {rank: 8, alpha: 0}}\n"), "model.lora.alpha: found '0'");
    check_has(refusal("model: {lora: {alpha: 8}}\n"), "model.lora.alpha: found a value without model.lora.rank");
    check_has(refusal("model: {lora: {targets: [q]}}\n"), "model.lora.targets: found a value without model.lora.rank");
    check_has(refusal("model: {lora: {rank: 8, targets: []}}\n"), "model.lora.targets: found no target");
    check_has(refusal("model: {lora: {rank: 8, dropout: 0.1}}\n"), "model.lora.dropout: found an unknown key");
    check_has(refusal("model: {lora: 8}\n"), "model.lora: found '8', allowed: a mapping of rank, alpha, targets");
    check_has(refusal("model: {lora: {rank: 8, targets: [q, q_proj]}}\n"),
              "model.lora.targets: found 'q_proj', which no matrix of this model is called, allowed: all, or parts of the names layers.0 to "
              "layers.11, each with attention.q, attention.k, attention.v, attention.o, mlp.up, mlp.down; did you mean attention.q?");
    const auto told = [&](const std::string& target) { return refusal("model: {lora: {rank: 8, targets: [\"" + target + "\"]}}\n"); };
    check_has(told("c_attn"), "; did you mean attention.q, attention.k, attention.v?");
    check_has(told("self_attn.v_proj"), "; did you mean attention.v?");
    check_has(told("all-linear"), "; did you mean all?");
    check_has(told("q,v"), "; a list is written [q,v]");
    CHECK(!has(told("head"), "did you mean"));
    for (const input::ChoiceAlias& alias : input::target_aliases()) {  // every name that is proposed is one of a matrix
        INFO(alias.foreign);
        CHECK(refusal("model: {activation: swiglu, lora: {rank: 8, targets: [" + std::string(alias.ours) + "]}}\n").empty());
    }
    for (const char* wrong : {"gate", "layers.12", "layer", "attention.up", "head", "embedding", "norm", "weight"})
        check_has(refusal(std::string("model: {lora: {rank: 8, targets: [") + wrong + "]}}\n"), std::string("found '") + wrong + "'");
    CHECK(refusal("model: {activation: swiglu, lora: {rank: 8, targets: [gate, layers.11, layers.0.attention]}}\n").empty());
    const std::string small = "model: {hidden_size: 48, num_attention_heads: 6, num_key_value_heads: 2, ffn_hidden_size: 40, lora: {rank: ";
    check_has(refusal(small + "17}}\n"), "model.lora.rank: found rank 17, allowed: up to 16, the full rank of layers.0.attention.k [16, 48]");
    check_has(refusal(small + "41, targets: [mlp]}}\n"), "found rank 41, allowed: up to 40, the full rank of layers.0.mlp.up [40, 48]");
    CHECK(refusal(small + "40, targets: [mlp]}}\n").empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "many names in a model of many layers are looked up at once") {
    const double begin = cpu_seconds();
    std::string names;
    for (int i = 0; i < 10000; ++i) names += fmt::format("layers.{}, ", 99999 - 2 * i);
    const std::string model = "model: {num_layers: 100000, hidden_size: 8, num_attention_heads: 1, lora: {rank: 1, targets: [" + names;
    const std::string exclude = "comm: {compression: {method: bf16, exclude: [" + names;
    CHECK(refusal(model + "q]}}\n" + exclude + "head]}}\n").empty());
    const std::string told = refusal(model + "layers.100000]}}\n" + exclude + "layers.-1]}}\n");
    check_has(told, "model.lora.targets: found 'layers.100000', which no matrix");
    check_has(told, "comm.compression.exclude: found 'layers.-1', which no unit");
    CHECK(cpu_seconds() - begin < 30);
}

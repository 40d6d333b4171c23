// Parameters, their cuts and units, and how layers spread over stages.
#include "model/model.hpp"
#include "compile_fixture.hpp"

#include <doctest.h>

#include <numeric>

using namespace quadrille;
using namespace quadrille::test;

namespace {

std::map<std::string, std::string> parameters(const Config& c) {
    auto tables = std::make_shared<Tables>(grid_of(c));
    const Model m = build_model(c, tables);
    std::map<std::string, std::string> out;
    for (const Parameter& p : m.parameters) out[p.name] = p.unit + " " + text(tables->type(p.type)) + (p.decays ? " decays" : "");
    return out;
}

}  // namespace

TEST_CASE("GPT-2's parameters over tp 2") {
    const auto p = parameters(on_grid(small_gpt(1), 1, 2, 1, 1));
    CHECK(p.size() == 20);
    CHECK(p.at("embedding.weight") == "tied f32[20/tp,12] decays");  // 19 rows, padded to a multiple of tp
    CHECK(p.at("position_embedding.weight") == "embedding f32[12,12] decays");
    CHECK(p.at("layers.0.attention.q.weight") == "layers.0 f32[6/tp,2,12] decays");
    CHECK(p.at("layers.0.attention.q.bias") == "layers.0 f32[6/tp,2]");
    CHECK(p.at("layers.0.attention.o.weight") == "layers.0 f32[12,6/tp,2] decays");
    CHECK(p.at("layers.0.attention.o.bias") == "layers.0 f32[12]");
    CHECK(p.at("layers.0.mlp.up.weight") == "layers.0 f32[12/tp,12] decays");
    CHECK(p.at("layers.0.mlp.down.weight") == "layers.0 f32[12,12/tp] decays");
    CHECK(p.at("final_norm.bias") == "head f32[12]");
}

TEST_CASE("Llama's parameters with fewer key-value heads than tp ranks") {
    const auto p = parameters(on_grid(small_llama(1), 1, 6, 1, 1));
    CHECK(p.size() == 12);
    CHECK(p.at("layers.0.attention.q.weight") == "layers.0 f32[6/tp/tq,2,12] decays");
    CHECK(p.at("layers.0.attention.k.weight") == "layers.0 f32[2/tp,2,12] decays");
    CHECK(p.at("layers.0.mlp.gate.weight") == "layers.0 f32[12/tp/tq,12] decays");
    CHECK(p.at("embedding.weight") == "embedding f32[24/tp/tq,12] decays");
    CHECK(p.at("head.weight") == "head f32[24/tp/tq,12] decays");
    CHECK(p.at("final_norm.weight") == "head f32[12]");
}

TEST_CASE("true shapes are without padding") {
    auto tables = std::make_shared<Tables>(grid_of(on_grid(small_gpt(1), 1, 2, 1, 1)));
    const Model m = build_model(on_grid(small_gpt(1), 1, 2, 1, 1), tables);
    for (const Parameter& p : m.parameters)
        if (p.name == "embedding.weight") CHECK(p.shape == std::vector<std::int64_t>{19, 12});
}

TEST_CASE("the model does not depend on how chunks are made") {
    Config c = small_gpt(4);
    const auto one = parameters(c);
    CHECK(parameters(on_grid(c, 1, 1, 2, 1)) == one);
    CHECK(parameters(on_grid(c, 2, 1, 4, 1)) == one);
}

TEST_CASE("layers per chunk") {
    Config c = small_gpt(8);
    c.grid.pp = 4;
    CHECK(layers_per_chunk(c) == std::vector<int>{2, 2, 2, 2});
    c.pipeline.virtual_stages = 2;
    CHECK(layers_per_chunk(c) == std::vector<int>(8, 1));
    c.pipeline.virtual_stages = 1;
    c.pipeline.layers_per_stage = {3, 2, 2, 1};
    CHECK(layers_per_chunk(c) == std::vector<int>{3, 2, 2, 1});
}

TEST_CASE("layers are spread by cost: the head counts") {
    Config c;  // GPT-2 124M's sizes: the head costs some five blocks
    c.grid.pp = 2;
    CHECK(layers_per_chunk(c) == std::vector<int>{8, 4});
    c.model.seq_length = 64;  // blocks have less attention to compute, the head weighs more
    CHECK(layers_per_chunk(c) == std::vector<int>{9, 3});
    c.model.seq_length = 1024;
    c.model.num_layers = 14;
    c.grid.pp = 4;
    const auto spread = layers_per_chunk(c);
    CHECK(std::accumulate(spread.begin(), spread.end(), 0) == 14);
    CHECK(spread.back() == 1);
    CHECK(*std::max_element(spread.begin(), spread.end()) - spread[0] <= 1);
    c.model.vocab_size = 8;  // a head that costs nothing: as even as can be
    const auto even = layers_per_chunk(c);
    CHECK(*std::max_element(even.begin(), even.end()) == 4);
    CHECK(*std::min_element(even.begin(), even.end()) == 3);
    for (int layers = 4; layers < 40; ++layers) {
        c.model.num_layers = layers;
        const auto n = layers_per_chunk(c);
        CHECK(std::accumulate(n.begin(), n.end(), 0) == layers);
        CHECK(*std::min_element(n.begin(), n.end()) >= 1);
    }
}

TEST_CASE("a shape that does not fit the grid is a typing error") {
    Config c = on_grid(small_gpt(1), 1, 5, 1, 1);  // 6 heads over 5 ranks
    auto tables = std::make_shared<Tables>(grid_of(c));
    CHECK_THROWS_AS(build_model(c, tables), TypingError);
}

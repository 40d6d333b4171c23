// config.json: what is written is read back as the same model, and each key that our models cannot be has its line.
#include "base/error.hpp"
#include "exchange/model_json.hpp"
#include "unit/temporary_directory.hpp"

#include <doctest.h>
#include <fmt/core.h>

#include <fstream>

using namespace quadrille;

namespace {

ModelConfig small(Family f) {
    ModelConfig m;
    m.num_layers = 3;
    m.hidden_size = 30;
    m.num_attention_heads = m.num_key_value_heads = 3;
    m.head_dim = 10;
    m.ffn_hidden_size = 70;
    m.vocab_size = 101;
    m.seq_length = 17;
    m.attention_dropout = 0.25;
    m.init_std = 0.03;
    if (f == Family::gpt2) {
        m.hidden_dropout = 0.125;
        return m;
    }
    m.normalization = Normalization::rmsnorm;
    m.activation = Activation::swiglu;
    m.position_embedding = PositionEmbedding::rope;
    m.num_key_value_heads = 1;
    m.head_dim = 14;
    m.rotary_base = 500000;
    m.norm_eps = 1e-6;
    m.bias = m.tie_word_embeddings = false;
    return m;
}

struct Folder {
    TemporaryDirectory directory;
    std::filesystem::path write(const std::string& text) const {
        const std::filesystem::path file = directory.path() / "config.json";
        std::ofstream(file) << text;
        return file;
    }
    std::string refusal(const std::string& text) const {
        try {
            read_model_json(write(text));
        } catch (const Error& e) {
            return e.what();
        }
        return "";
    }
};

}  // namespace

TEST_CASE_FIXTURE(Folder, "a model is read back as it was written, in both families, tied and not, with biases and without") {
    for (const Family f : {Family::gpt2, Family::llama})
        for (const bool tied : {false, true})
            for (const bool bias : {false, true}) {
                ModelConfig m = small(f);
                m.tie_word_embeddings = tied;
                if (f == Family::llama) m.bias = bias;
                REQUIRE(family_of(m) == f);
                const TheirModel back = read_model_json(write(model_json(f, m, DType::f32, 7)));
                CHECK(back.family == f);
                CHECK(back.model == m);
            }
}

TEST_CASE_FIXTURE(Folder, "what our models cannot be is refused, all of it at once") {
    const std::string said = refusal(R"({"model_type":"llama","hidden_act":"relu","mlp_bias":true,"sliding_window":4096,"hidden_size":"wide",
        "rope_scaling":{"rope_type":"llama3","factor":8.0},"quantization_config":{}})");
    CAPTURE(said);
    for (const char* part : {"hidden_act is \"relu\"", "mlp_bias true", "sliding_window is 4096", "hidden_size is \"wide\"", "rope_type \"llama3\"",
                             "quantization_config"})
        CHECK(said.find(part) != std::string::npos);
    for (const char* type : {"linear", "dynamic", "yarn", "longrope"}) {  // as files until version 5 of the reference library have it
        const std::string text = fmt::format(R"({{"model_type":"llama","rope_scaling":{{"type":"{}","factor":2.0}}}})", type);
        CHECK(refusal(text).find(fmt::format("rope_scaling has rope_type \"{}\", allowed: default", type)) != std::string::npos);
    }
    CHECK(refusal(R"({"model_type":"llama","partial_rotary_factor":0.5})").find("partial_rotary_factor") != std::string::npos);
    CHECK(refusal(R"({"model_type":"llama","num_attention_heads":"8"})").find("num_attention_heads is \"8\"") != std::string::npos);
    CHECK(refusal(R"({"model_type":"gpt2","activation_function":"gelu"})").find("activation_function is \"gelu\"") != std::string::npos);
    CHECK(refusal(R"({"model_type":"gpt2","n_head":5})").find("does not divide n_embd 768") != std::string::npos);
    CHECK(refusal(R"({"model_type":"gpt2","n_head":0})").find("n_head") != std::string::npos);
    CHECK(refusal(R"({"model_type":"mamba"})").find("model_type is \"mamba\"") != std::string::npos);
    CHECK(refusal("{").find("is no JSON") != std::string::npos);
    CHECK(refusal(R"({"model_type":"gpt2","model_type":"llama"})").find("twice") != std::string::npos);
}

TEST_CASE("a model that neither family holds is refused with what each wants") {
    ModelConfig m = small(Family::gpt2);
    m.position_embedding = PositionEmbedding::rope;
    try {
        family_of(m);
        FAIL("was taken");
    } catch (const Error& e) {
        const std::string said = e.what();
        CHECK(said.find("gpt2 wants position_embedding learned") != std::string::npos);
        CHECK(said.find("llama wants normalization rmsnorm, activation swiglu") != std::string::npos);
    }
}

TEST_CASE("every parameter has its place once, and as many elements there") {
    for (const Family f : {Family::gpt2, Family::llama}) {
        const ModelConfig m = small(f);
        for (const TheirTensor& t : layout_of(f, m)) {
            std::int64_t elements = 1, ours = 0;
            for (const std::int64_t n : t.shape) elements *= n;
            for (const OurPart& p : t.parts) ours += p.out * p.in;
            CAPTURE(t.name);
            CHECK(elements == ours);
            CHECK(elements == t.elements());
        }
    }
}

// What export and import hold in memory: one tensor at a time, however many the model has.
#include "exchange/exchange.hpp"
#include "exchange/model_json.hpp"
#include "exchange/safetensors.hpp"
#include "exchange/tensor_folder.hpp"
#include "unit/temporary_directory.hpp"

#include <doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

using namespace quadrille;

namespace fs = std::filesystem;

namespace {

std::int64_t peak_bytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return std::int64_t{usage.ru_maxrss} * 1024;
}

struct Sizes { std::int64_t largest = 0, all = 0; };  // bytes of tensors

// Writes a model of this family, whose tensors are alike in size, to the folder.
Sizes write_model(Family family, const fs::path& folder, std::int64_t layers) {
    ModelConfig m;
    m.num_layers = layers;
    m.hidden_size = 256;
    m.num_attention_heads = m.num_key_value_heads = 4;
    m.head_dim = 64;
    m.ffn_hidden_size = 512;
    m.vocab_size = 512;
    m.seq_length = 64;
    if (family == Family::llama) {
        m.normalization = Normalization::rmsnorm;
        m.activation = Activation::swiglu;
        m.position_embedding = PositionEmbedding::rope;
        m.bias = m.tie_word_embeddings = false;
    }
    fs::create_directories(folder);
    std::ofstream(folder / "config.json") << model_json(family, m, DType::f32, {});
    Sizes sizes;
    std::vector<SafeTensor> tensors;
    for (const TheirTensor& t : layout_of(family, m)) {
        tensors.emplace_back().name = t.name;
        tensors.back().shape = t.shape;
        const std::int64_t bytes = t.elements() * std::int64_t{sizeof(float)};
        sizes.largest = std::max(sizes.largest, bytes);
        sizes.all += bytes;
    }
    const std::vector<float> values(static_cast<std::size_t>(sizes.largest) / sizeof(float), 0.25f);
    SafetensorsWriter writer(folder / whole_name, tensors, DType::f32);
    for (const SafeTensor& t : tensors) writer.write_next(std::span(values).first(static_cast<std::size_t>(t.elements())));
    writer.finish();
    return sizes;
}

}  // namespace

TEST_CASE("memory holds a tensor, not the model" * doctest::skip(QUADRILLE_SANITIZED != 0)) {  // a sanitizer keeps what was freed
    for (const Family family : {Family::gpt2, Family::llama}) {
        CAPTURE(name_of(family));
        const TemporaryDirectory scratch;
        write_model(family, scratch.path() / "small", 1);
        import_model(scratch.path() / "small", scratch.path() / "small-steps");  // libraries and their tables are there from now on
        export_checkpoint(scratch.path() / "small-steps", scratch.path() / "small-out");
        const Sizes sizes = write_model(family, scratch.path() / "model", 16);
        REQUIRE(sizes.all > 40 * sizes.largest);
        const std::int64_t before = peak_bytes();
        import_model(scratch.path() / "model", scratch.path() / "steps");
        ExportSettings bf16;
        bf16.dtype = DType::bf16;
        export_checkpoint(scratch.path() / "steps", scratch.path() / "out");
        export_checkpoint(scratch.path() / "steps", scratch.path() / "out16", bf16);
        import_model(scratch.path() / "out16", scratch.path() / "again");
        const std::int64_t more = peak_bytes() - before;
        fmt::print("{}: {} bytes, the largest tensor {}; memory grew by {}\n", name_of(family), sizes.all, sizes.largest, more);
        CHECK(more < 2 * sizes.largest + (4 << 20));  // and the names and places of more tensors
    }
}

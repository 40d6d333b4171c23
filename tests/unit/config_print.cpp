#include "config_fixture.hpp"

#include "config/keys.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

using namespace quadrille;

namespace fs = std::filesystem;

namespace {

std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file);
    return {std::istreambuf_iterator<char>(file), {}};
}

const fs::path inputs = fs::path(QUADRILLE_SOURCE) / "inputs";

}  // namespace

TEST_CASE_FIXTURE(ConfigFixture, "the resolved text loads as the same Config and prints as the same text") {
    file("w\"ei\\rd [1].txt", "x");
    file("no", "x");
    const std::string texts[] = {
        "model: {num_layers: 2}\n",
        "model: {hidden_size: 64, num_attention_heads: 4, activation: swiglu, norm_eps: 1e-6, init_std: 0.1}\ngrid: {tp: 2, order: "
        "pp-tp-dp-sp}\ndata: {format: synthetic}\n",
        "data: {train: ['w\"ei\\rd [1].txt', no, '*.md'], split: '0.9,0.1', end_of_document: 7, mask_across_documents: true}\n",
        "grid: {pp: 3, sp: 2}\npipeline: {schedule: gpipe, virtual_stages: 2, layers_per_stage: [1, 2, 3, 1, 2, 3]}\nsequence: "
        "{method: ulysses}\n",
        "train: {global_batch_size: 24, precision: bf16, gradient_dtype: bf16, steps: 5, seed: 1e18}\noptimizer: {lr: 1e-5, "
        "lr_schedule: wsd}\n",
        "comm: {max_count: 1000, bucket_size: 1000, algorithm: hierarchical}\ngrid: {pretend_nodes: 2}\n"
        "device: {memory_limit: 3GiB, host_memory_limit: 5, threads: 7}\noutput: "
        "{directory: \"a 'b' \\\"c\\\"\\n\\x01\"}\n",
        "train: {steps: 5}\noptimizer: {warmup_steps: 5}\n",
        "comm: {bucket_size: auto}\ngrid: {order: auto}\n",
        "checkpoint: {directory: \"a b\", interval: 5, hints: {\"a \\\"b\\\"\": c, d: \"\"}, keep: 0, resume: \"./x y\", asynchronous: true}\n"
        "train: {time_limit: 0.5}\n",
        "train: {precision: fp16, gradient_dtype: fp16}\nloss_scale: {initial: 1024, window: 5, minimum: 2}\n",
    };
    for (const std::string& text : texts) {
        const Config config = load(text);
        const std::string resolved = to_yaml(config);
        INFO(resolved);
        CHECK(load(resolved) == config);
        CHECK(to_yaml(load(resolved)) == resolved);
        CHECK(parse_resolved(resolved) == config);
        job.planning = false;
        if (config.data.format == DataFormat::synthetic) CHECK(to_yaml(load(resolved)) == resolved);
        job.planning = true;
    }
    job = {.ranks = 2, .ranks_per_node = 2, .cpus = 4, .cpu_sharers = 2, .memory_available = 1 << 30, .planning = false};
    const Config config = load("data: {format: synthetic}\n");
    CHECK(config.device.threads == 2);
    CHECK(to_yaml(load(to_yaml(config))) == to_yaml(config));
}

TEST_CASE_FIXTURE(ConfigFixture, "the resolved text has every key, and only such text is parsed back") {
    const std::string resolved = to_yaml(load("model: {num_layers: 2}\n"));
    std::string flat = resolved;
    for (const input::Key& key : input::keys()) {
        const std::string name = key.name.substr(key.name.rfind('.') + 1);
        check_has(flat, "  " + name + ":");
    }
    check_has(resolved, "  num_layers: 2\n");
    check_has(resolved, "  backend: mpi\n");
    check_has(resolved, "  bucket_size: 25MiB\n");
    check_has(resolved, "    method: none\n");
    check_has(resolved, "  deterministic: run  # the only value in this build\n");
    CHECK_THROWS_AS(parse_resolved(""), Error);
    CHECK_THROWS_AS(parse_resolved("model: {num_layers: 2}\n"), Error);
    CHECK_THROWS_AS(parse_resolved(resolved + "# more\n"), Error);
    CHECK_THROWS_AS(parse_resolved("model: {num_layers: x}\n"), Error);
}

TEST_CASE_FIXTURE(ConfigFixture, "in short: the keys that can vary, and of many files their number and size") {
    file("a.txt", std::string(1000, 'x'));
    file("b.txt", std::string(560, 'x'));
    file("c.bin", std::string(512, 'x'));
    const std::string text = in_short(load("model: {num_layers: 2}\ndata: {train: [a.txt, b.txt], valid: [a.txt]}\n"));
    check_has(text, "  model:      num_layers: 2, hidden_size: 768, ");
    check_has(text, "lora.targets: [all]");
    check_has(text, "train: 2 files of 1.52 KiB, valid: " + (folder / "a.txt").string());
    check_has(text, "\n              ");  // long sections go on below their first key
    CHECK(!has(text, "deterministic"));
    CHECK(lines(text) < 40);
    check_has(in_short(load("data: {train: [a.txt, nothing.txt]}\n")), "train: 2 files of 1000 B (1 not found)");
    check_has(in_short(load("data: {format: megatron, train: [c, c]}\n")), "train: 2 files of 1.00 KiB");
}

TEST_CASE_FIXTURE(ConfigFixture, "inputs/reference.yaml is the table of keys, and loads as the defaults") {
    const std::string text = reference_yaml();
    if (std::getenv("QUADRILLE_UPDATE") != nullptr) std::ofstream(inputs / "reference.yaml", std::ios::binary) << text;
    CHECK_MESSAGE(contents(inputs / "reference.yaml") == text, "run this test with QUADRILLE_UPDATE=1 and review the difference");
    const Config reference = load(text), defaults = load("model: {}\n");
    CHECK(to_yaml(reference) == to_yaml(defaults));
    for (const input::Key& key : input::keys()) {
        const std::string name = key.name.substr(key.name.rfind('.') + 1);
        const std::string path = key.path(), indent(2 * static_cast<std::size_t>(std::count(path.begin(), path.end(), '.')), ' ');
        check_has(text, key.live() ? "\n" + indent + name + ": " + key.fallback : "\n#   " + key.path() + ": " + key.fallback);
        if (!key.live()) CHECK(text.find(key.path()) > text.find("# Not in this build."));
    }
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) CHECK(end - begin <= 145);
}

TEST_CASE_FIXTURE(ConfigFixture, "every input file loads, on the ranks that its head names") {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(inputs)) {
        if (entry.path().extension() != ".yaml") continue;
        ++count;
        INFO(entry.path().string());
        job = {};
        const Config alone = load_config(entry.path().string(), {}, job);
        CHECK(to_yaml(load(to_yaml(alone), {"output.directory=" + alone.output.directory})).size() == to_yaml(alone).size());
        const std::string text = contents(entry.path());
        CHECK(text.find("mpirun") == std::string::npos);  // which refuses root and binds ranks to cores
        const std::string launch = "jobscripts/launch.sh ";
        const std::size_t at = text.find(launch);
        if (at == std::string::npos) continue;
        job.ranks = std::stoll(text.substr(at + launch.size()));
        check_has(text, fmt::format("{}{} build/quadrille train inputs/{}\n", launch, job.ranks, entry.path().filename().string()));
        CHECK(load_config(entry.path().string(), {}, job).grid.ranks() == job.ranks);
    }
    CHECK(count == 15);
}

TEST_CASE_FIXTURE(ConfigFixture, "the shapes of real models") {
    const auto parameters = [&](const char* name) {
        const ModelConfig m = load_config((inputs / name).string(), {}, job).model;
        const bool swiglu = m.activation == Activation::swiglu;
        const double attention =
            2.0 * static_cast<double>(m.hidden_size * m.head_dim * (m.num_attention_heads + m.num_key_value_heads));
        const double mlp = (swiglu ? 3.0 : 2.0) * static_cast<double>(m.hidden_size * m.ffn_hidden_size);
        const double table = static_cast<double>(m.vocab_size * m.hidden_size);
        return static_cast<double>(m.num_layers) * (attention + mlp) + table * (m.tie_word_embeddings ? 1 : 2);
    };
    // Published totals; norms, biases and positions are left out here, under one percent of them.
    const std::pair<const char*, double> models[] = {
        {"gpt2-124m.yaml", 124.4e6}, {"gpt2-350m.yaml", 354.8e6},  {"gpt2-774m.yaml", 774e6},     {"gpt2-1.5b.yaml", 1557.6e6},
        {"gpt3-175b.yaml", 174.6e9}, {"llama2-7b.yaml", 6.738e9},  {"llama2-13b.yaml", 13.016e9}, {"llama2-70b.yaml", 68.98e9},
        {"llama3-8b.yaml", 8.030e9}, {"llama3-70b.yaml", 70.55e9}, {"llama3-405b.yaml", 405.85e9}};
    for (const auto& model : models) {
        INFO(model.first);
        CHECK(parameters(model.first) == doctest::Approx(model.second).epsilon(0.01));
    }
    job.ranks = 16384;
    const Config c = load_config((inputs / "llama3-405b.yaml").string(), {}, job);
    CHECK(c.grid == GridConfig{.dp = 8, .tp = 8, .pp = 16, .sp = 16, .order = {"tp", "sp", "dp", "pp"}});
    CHECK(c.train.gradient_accumulation_steps == 64);
    CHECK(c.model.seq_length == 131072);
}

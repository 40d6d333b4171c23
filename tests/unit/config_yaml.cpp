#include "config_fixture.hpp"

#include "config/yaml_reader.hpp"

using namespace quadrille;

namespace {
const std::string good = "model:\n  num_layers: 4\n";
}

TEST_CASE_FIXTURE(ConfigFixture, "odd files: line ends, marks, JSON, comments, quotes, anchors") {
    CHECK(load(good).model.num_layers == 4);
    CHECK(load("model:\r\n  num_layers: 4\r\n  bias: false\r\n").model.bias == false);
    CHECK(load("model:\r  num_layers: 5\r").model.num_layers == 5);
    CHECK(load("\xEF\xBB\xBFmodel:\n  num_layers: 4\n").model.num_layers == 4);
    CHECK(load("model:\n  num_layers: 4\t\n").model.num_layers == 4);
    CHECK(load("model:\n  num_layers: 4\t# a comment\n").model.num_layers == 4);
    CHECK(load("---\nmodel: {num_layers: 4}\n...\n").model.num_layers == 4);
    CHECK(load("%YAML 1.2\n---\nmodel: {num_layers: 4}\n").model.num_layers == 4);
    CHECK(load("{\"model\": {\"num_layers\": 4, \"bias\": false}, \"data\": {\"format\": \"synthetic\"}}").model.bias == false);
    CHECK(load("{\n\t\"model\": {\n\t\t\"num_layers\": 4\n\t}\n}\n").model.num_layers == 4);
    CHECK(load("{\n  # NeoX\n  \"model\": {'num_layers': 4, bias: True,},\n}\n").model.num_layers == 4);
    CHECK(load("model: &m {num_layers: &n 4, hidden_size: 64, num_attention_heads: *n}\n").model.num_attention_heads == 4);
    CHECK(load("model:\n  num_layers: 4\ntensor:\ngrid:\n  # all commented out\n").model.num_layers == 4);
    CHECK(load("# comments\n\nmodel: {num_layers: !!int 4}\noutput: {directory: !!str 7}\n").output.directory == "7");
    CHECK(load(good + "# p\xC3\xA9p\xC3\xA9\n").model.num_layers == 4);
}

TEST_CASE_FIXTURE(ConfigFixture, "odd files that are refused, with their place") {
    check_has(refusal(""), "in.yaml: the file is empty");
    check_has(refusal("# only\n# comments\n"), "the file is empty");
    check_has(refusal("\n\n---\n"), "the file is empty");
    check_has(refusal("- model\n- grid\n"), "in.yaml:1:1: found a list of 2 at the top");
    check_has(refusal("just words\n"), "found 'just words' at the top");
    check_has(refusal(good + "---\n" + good), "in.yaml:3:1: a second document begins here");
    check_has(refusal("model:\n\tnum_layers: 4\n"), "in.yaml:2:");
    check_has(refusal("model:\n\tnum_layers: 4\n"), "indented with a tab");
    check_has(refusal("model:\n  num_layers: 4\n\tbias: true\n"), "indented with a tab");
    check_has(refusal("model:\n  num_layers: 4 # caf\xE9\n"), "in.yaml:2:22: found the byte 0xE9, which is not UTF-8");
    check_has(refusal(std::string("model:\n  num_layers: 4\0\n", 23)), "in.yaml:2:16: found the control character 0x00");
    check_has(refusal("model:\n  num_layers: 4\n\x04\ngrid: {dp: 3}\n"), "in.yaml:3:1: found the control character 0x04");
    check_has(refusal("\xFF\xFEm\0o\0"), "UTF-16");
    check_has(refusal("model: {num_layers: 4\n"), "not YAML");
    check_has(refusal("model: [1, 2\ngrid: 3\n"), "not YAML");
    check_has(refusal("model:\n  num_layers: 4\n bias: true\n"), "in.yaml:3:");
    check_has(refusal("output: {directory: %date_%jobid}\n"), "in.yaml:1:21: not YAML");
    check_has(refusal("model: *nowhere\n"), "in.yaml:1:8: not YAML");
    check_has(refusal("? [a, b]\n: 3\n"), "a key must be a word");
    for (const char* open : {"{", "[", "{a: 1", "[1, 2"})
        check_has(refusal(good, {std::string("model.num_layers=") + open}), "the list or mapping in brackets that begins here has no end");
    for (const char* open : {"\"", "'"})
        check_has(refusal(good, {std::string("model.num_layers=") + open}), "the text in quotes that begins here has no end");
    check_has(refusal("model: {num_layers: !mine 4}\n"), "found the tag !mine");
    check_has(refusal_of((folder / "missing.yaml").string()),
              "missing.yaml: the input file cannot be opened: No such file or directory");
    check_has(refusal_of(folder.string()), ": found a folder, allowed: a YAML file");
    check_has(refusal(std::string((16 << 20) + 10, ' ')), "found more than 16777216 bytes");
}

TEST_CASE_FIXTURE(ConfigFixture, "columns count characters, not bytes") {
    check_has(refusal("model: {num_layers: 4} #\nx: {\"\xC3\xA9\xC3\xA9\": 1, \"\xC3\xA9\xC3\xA9\": 2}\n"),
              "in.yaml:2:1: x: found an unknown section");
    check_has(refusal("output: {directory: \"\xC3\xA9\xC3\xA9\", log_interval: x}\n"), "in.yaml:1:41: output.log_interval");
}

TEST_CASE_FIXTURE(ConfigFixture, "merge keys are refused, never ignored") {
    check_has(refusal("model: &base {num_layers: 4}\ngrid:\n  <<: *base\n  tp: 1\n"), "in.yaml:3:3: merge keys (<<) are not taken");
    check_has(refusal("<<: {model: {num_layers: 4}}\n"), "in.yaml:1:1: merge keys");
    check_has(refusal("model: {\"<<\": 1}\n"), "model.<<: found an unknown key");
}

TEST_CASE_FIXTURE(ConfigFixture, "alias cycles and bombs are refused at once") {
    const double begin = cpu_seconds();
    check_has(refusal("model: &m {num_layers: *m}\n"), "in.yaml:1:24: this alias stands inside its own anchor");
    check_has(refusal("model: &m [*m, *m]\n"), "inside its own anchor");
    check_has(refusal("&m model: {num_layers: *m}\n"), "model.num_layers: found 'model'");
    std::string lists = "a0: &a0 [x, x]\n", maps = "b0: &b0 {x: 1}\n";
    for (int i = 1; i < 60; ++i) {
        lists += fmt::format("a{}: &a{} [*a{}, *a{}, *a{}]\n", i, i, i - 1, i - 1, i - 1);
        maps += fmt::format("b{}: &b{} {{lr: *b{}, tp: *b{}, dp: *b{}}}\n", i, i, i - 1, i - 1, i - 1);
    }
    check_has(refusal(lists + "model: {num_layers: *a59}\n"), "model.num_layers: found a list of 3");
    check_has(refusal(lists + "data: {train: *a59}\n"), "data.train: found a list of 3");
    const std::string many = refusal(maps + "model: *b59\n");
    check_has(many, "more problems");
    CHECK(lines(many) == 201);
    const std::string texts = "a: &a " + std::string(400000, 'x') + "\n";
    check_has(refusal(texts + "data: {train: [*a, *a, *a]}\n"), "in.yaml:2:24: the texts that aliases stand for have more than 1048576 bytes in all");
    check_has(refusal(texts + "b: {*a : 1, *a : 2, *a : 3}\n"), "the texts that aliases stand for");
    CHECK(cpu_seconds() - begin < 30);
}

TEST_CASE_FIXTURE(ConfigFixture, "long lines and deep nesting do not hang") {
    const double begin = cpu_seconds();
    const std::string megabyte(1 << 20, 'x');
    CHECK(load("model: {num_layers: 4}\n# " + megabyte + "\n").model.num_layers == 4);
    const std::string text = refusal("model: {normalization: " + megabyte + "}\n");
    check_has(text, "of 1048576 bytes, allowed: layernorm | rmsnorm");
    CHECK(text.size() < 300);
    const std::string long_key = refusal("model: {" + megabyte + ": 4}\n");
    check_has(long_key, "in.yaml:1:9: ");
    CHECK(long_key.size() < 1000);
    check_has(refusal("model: " + std::string(100000, '[') + "\n"), "in.yaml:1:");
    check_has(refusal("model: " + std::string(400, '[') + std::string(400, ']') + "\n"), "model: found a list of 1");
    std::string keys = "model:\n";
    for (int i = 0; i < 50000; ++i) keys += fmt::format("  k{}: 1\n", i);
    check_has(refusal(keys), "and 49800 more problems");
    std::string one_line = "model: {num_layers: [1";
    for (int i = 0; i < 300000; ++i) one_line += ", 1";
    check_has(refusal(one_line + "], bias: 7}\n"), "in.yaml:1:900032: model.bias: found '7'");
    std::string weights = "data: {format: synthetic, split: \"1";
    for (int i = 0; i < 300000; ++i) weights += ",1";
    check_has(refusal(weights + "\"}\n"), "data.split: found '1,1,");
    std::string names = "model";
    for (int i = 0; i < 200000; ++i) names += ".m";
    check_has(refusal(good, {names + "=1"}), "found a key of 200001 names, allowed: up to 16");
    CHECK(cpu_seconds() - begin < 30);
}

TEST_CASE_FIXTURE(ConfigFixture, "standard input") {
    const std::string path = file("stdin.yaml", "model: {num_layers: 4}\ndata: {train: [a.txt]}\nmodle: 3\n");
    FILE* const read = std::freopen(path.c_str(), "r", stdin);
    REQUIRE(read != nullptr);
    check_has(refusal_of("-"), "<stdin>:3:1: modle: found an unknown key");
}

TEST_CASE("null is what is written plain") {
    input::Problems problems("f", {});
    const auto document = input::read_yaml("a: null\nb: 'null'\nc: ~\nd:\ne: \"\"\nf: nullable\n", 0, problems);
    REQUIRE(document != nullptr);
    const auto& entries = document->entries;
    CHECK(entries[0].value->is_null());
    CHECK(entries[0].value->text == "null");
    CHECK_FALSE(entries[1].value->is_null());
    CHECK(entries[2].value->is_null());
    CHECK(entries[3].value->is_null());
    CHECK(entries[3].value->place.line == 4);
    CHECK_FALSE(entries[4].value->is_null());
    CHECK_FALSE(entries[5].value->is_null());
}

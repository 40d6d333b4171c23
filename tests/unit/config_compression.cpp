// Compression of gradients in the input file: what is taken, and what is refused.
#include "config/compression.hpp"
#include "config_fixture.hpp"

using namespace quadrille;

TEST_CASE_FIXTURE(ConfigFixture, "compression is off, and on by its method alone") {
    CHECK(!load("model: {}\n").compression.on());
    CHECK(load("comm: {compression: {method: none, ratio: 0.01, bits: 4, error_feedback: true, exclude: [embedding, head]}}\n") ==
          load("model: {}\n"));
    const Config c = load("comm: {compression: {method: topk, ratio: 0.05, error_feedback: false, exclude: [head, layers.3]}}\n");
    CHECK(c.compression == CompressionConfig{CompressionMethod::topk, 0.05, 4, false, {"head", "layers.3"}});
    CHECK(parse_resolved(to_yaml(c)) == c);
    CHECK(load("model: {}\n", {"comm.compression.method=qsgd", "comm.compression.bits=8", "comm.compression.exclude=[]"}).compression ==
          CompressionConfig{CompressionMethod::qsgd, 0.01, 8, true, {}});
}

TEST_CASE_FIXTURE(ConfigFixture, "what compression is refused") {
    const auto with = [&](const char* keys) { return refusal(std::string("comm: {compression: {") + keys + "}}\n"); };
    check_has(with("method: powersgd"), "comm.compression.method: found 'powersgd', allowed: none | bf16 | fp16 | topk | qsgd");
    check_has(with("method: topk, ratio: 0"), "comm.compression.ratio: found '0'");
    check_has(with("method: topk, ratio: 1.5"), "comm.compression.ratio: found '1.5'");
    check_has(with("method: qsgd, bits: 1"), "comm.compression.bits: found '1'");
    check_has(with("method: qsgd, bits: 9"), "comm.compression.bits: found '9'");
    check_has(with("method: qsgd, bits: 2"), "comm.compression.bits: found bits 2 with error_feedback, allowed: 3 to 8, or error_feedback false");
    CHECK(with("method: qsgd, bits: 2, error_feedback: false").empty());
    for (const char* method : {"fp16", "topk", "qsgd"})
        check_has(refusal(std::string("grid: {tp: 2}\ncomm: {compression: {method: ") + method + "}}\n"),
                  std::string("comm.compression.method: found ") + method + " with tp 2, allowed: bf16, or tp 1");
    CHECK(refusal("grid: {tp: 2}\ncomm: {compression: {method: bf16}}\n").empty());
    CHECK(with("method: topk, bits: 2").empty());
    check_has(with("method: bf16, exclude: [head, layers.12]"),
              "comm.compression.exclude: found 'layers.12', which no unit of this model is called, allowed: all, embedding, head, or parts of the "
              "names layers.0 to layers.11");
    check_has(with("method: bf16, exclude: [attention]"), "found 'attention'");
    CHECK(with("method: bf16, exclude: [layers, embedding]").empty());
    check_has(with("method: bf16, exclude: [lora]"), "found 'lora'");
    CHECK(refusal("model: {lora: {rank: 8}}\ncomm: {compression: {method: bf16, exclude: [lora, layers.11.lora]}}\n").empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "staleness: 0 or 1, and what it does not go with") {
    CHECK(load("comm: {staleness: 1}\n").comm.staleness == 1);
    check_has(refusal("comm: {staleness: 2}\n"), "comm.staleness: found '2'");
    check_has(refusal("comm: {staleness: 1}\nsharding: {zero_stage: 2}\n"), "found staleness 1 with zero_stage 2, allowed: 0 or 1");
    check_has(refusal("comm: {staleness: 1}\ntrain: {precision: fp16}\n"), "found staleness 1 with precision fp16");
    check_has(refusal("comm: {staleness: 1}\noffload: {gradients: cpu}\n"), "found staleness 1 with offloaded gradients");
    check_has(refusal("comm: {staleness: 1, compression: {method: topk}}\n"), "found staleness 1 with compression topk, allowed: one of them");
}

TEST_CASE_FIXTURE(ConfigFixture, "a table with two uses is excluded with either") {
    CompressionConfig c;
    CHECK(sent_whole(c, "embedding"));
    CHECK(sent_whole(c, "head"));
    CHECK(sent_whole(c, "tied"));
    CHECK(!sent_whole(c, "layers.0"));
    c.exclude = {"head"};
    CHECK(sent_whole(c, "tied"));
    CHECK(!sent_whole(c, "embedding"));
    c.exclude = {"layers.1", "lora"};
    CHECK(!sent_whole(c, "tied"));
    CHECK(sent_whole(c, "layers.1"));
    CHECK(sent_whole(c, "layers.1.lora"));
    CHECK(sent_whole(c, "layers.2.lora"));
    CHECK(!sent_whole(c, "layers.11"));
    c.exclude = {"all"};
    CHECK(sent_whole(c, "layers.2"));
}

TEST_CASE_FIXTURE(ConfigFixture, "keys of compression that have no effect are told of") {
    const auto told = [&](const std::string& text) {
        std::vector<std::string> warnings;
        std::string all;
        load_config(file("in.yaml", text + "data: {format: synthetic}\n"), {}, job, &warnings);
        for (const std::string& w : warnings) all += w + "; ";
        return all;
    };
    CHECK(told("").empty());
    CHECK(told("comm: {compression: {bits: 8}}\n") == "comm.compression has no effect without a method; ");
    CHECK(told("comm: {compression: {method: bf16, bits: 8}}\n") == "comm.compression.bits has no effect without method qsgd; ");
    CHECK(told("comm: {compression: {method: qsgd, ratio: 0.5}}\n") == "comm.compression.ratio has no effect without method topk; ");
    CHECK(told("comm: {compression: {method: topk, ratio: 0.5}}\n").empty());
    CHECK(told("comm: {compression: {method: topk, exclude: [all]}}\n") ==
          "comm.compression has no effect while comm.compression.exclude names every unit; ");
    CHECK(told("comm: {compression: {method: topk, exclude: [layers, embedding, head]}}\n") ==
          "comm.compression has no effect while comm.compression.exclude names every unit; ");
    CHECK(told("train: {precision: bf16, gradient_dtype: bf16}\ncomm: {compression: {method: bf16}}\n") ==
          "comm.compression.method bf16 saves no byte of gradients that are bf16 (train.gradient_dtype); ");
    job.planning = false;
    job.ranks = 2;
    job.cpus = 2;
    CHECK(told("grid: {tp: 2}\ncomm: {compression: {method: bf16}}\n") == "comm.compression has no effect while dp is 1; ");
    CHECK(told("comm: {compression: {method: bf16}}\n").empty());
    CHECK(told("comm: {staleness: 1}\n").empty());
    CHECK(told("grid: {tp: 2}\ncomm: {staleness: 1}\n") ==
          "comm.staleness hides nothing while dp and sp are 1: there is nobody to sum gradients with; ");
}

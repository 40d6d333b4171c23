#include "config_fixture.hpp"

using namespace quadrille;

namespace {
struct Batch {
    std::int64_t global, micro, accumulation;
    bool operator==(const Batch&) const = default;
};
}  // namespace

TEST_CASE_FIXTURE(ConfigFixture, "two of global, micro and accumulation determine the third; defaults yield") {
    const auto batch = [&](const std::string& train, int dp) {
        const Config c = load(fmt::format("train: {{{}}}\ngrid: {{dp: {}}}\n", train, dp));
        CHECK(c.train.global_batch_size == c.train.micro_batch_size * c.train.gradient_accumulation_steps * dp);
        return Batch{c.train.global_batch_size, c.train.micro_batch_size, c.train.gradient_accumulation_steps};
    };
    CHECK(batch("", 1) == Batch{32, 4, 8});
    CHECK(batch("", 8) == Batch{32, 4, 1});
    CHECK(batch("", 16) == Batch{64, 4, 1});
    CHECK(batch("", 3) == Batch{36, 4, 3});
    CHECK(batch("global_batch_size: 8", 1) == Batch{8, 4, 2});
    CHECK(batch("global_batch_size: 8", 4) == Batch{8, 2, 1});
    CHECK(batch("global_batch_size: 7", 1) == Batch{7, 1, 7});
    CHECK(batch("global_batch_size: 9", 3) == Batch{9, 3, 1});
    CHECK(batch("micro_batch_size: 1", 2) == Batch{32, 1, 16});
    CHECK(batch("micro_batch_size: 5", 1) == Batch{35, 5, 7});
    CHECK(batch("micro_batch_size: 64", 2) == Batch{128, 64, 1});
    CHECK(batch("gradient_accumulation_steps: 3", 2) == Batch{24, 4, 3});
    CHECK(batch("global_batch_size: 24, micro_batch_size: 2", 3) == Batch{24, 2, 4});
    CHECK(batch("global_batch_size: 24, gradient_accumulation_steps: 2", 3) == Batch{24, 4, 2});
    CHECK(batch("micro_batch_size: 2, gradient_accumulation_steps: 5", 3) == Batch{30, 2, 5});
    CHECK(batch("global_batch_size: 30, micro_batch_size: 2, gradient_accumulation_steps: 5", 3) == Batch{30, 2, 5});
    CHECK(batch("global_batch_size: auto, micro_batch_size: 2, gradient_accumulation_steps: 5", 3) == Batch{30, 2, 5});
    CHECK(batch("global_batch_size: 24, micro_batch_size: auto, gradient_accumulation_steps: auto", 2) == Batch{24, 4, 3});
}

TEST_CASE_FIXTURE(ConfigFixture, "numbers that disagree are refused, with all of them") {
    check_has(
        refusal("train: {global_batch_size: 8, gradient_accumulation_steps: 3}\n"),
        "train.global_batch_size: found global_batch_size 8, which is not a multiple of gradient_accumulation_steps 3 x dp 1 = 3");
    check_has(refusal("train: {global_batch_size: 10, micro_batch_size: 4}\ngrid: {dp: 2}\n"),
              "in.yaml:1:28: train.global_batch_size: found global_batch_size 10, which is not a multiple of micro_batch_size 4 x "
              "dp 2 = 8");
    check_has(refusal("train: {global_batch_size: 16, micro_batch_size: 4, gradient_accumulation_steps: 3}\ngrid: {dp: 2}\n"),
              "found global_batch_size 16, but micro_batch_size 4 x gradient_accumulation_steps 3 x dp 2 = 24");
    check_has(refusal("train: {global_batch_size: 10}\ngrid: {dp: 4}\n"),
              "found global_batch_size 10, which is not a multiple of dp 4");
    for (const char* zero : {"global_batch_size: 0", "micro_batch_size: 0", "gradient_accumulation_steps: 0",
                             "global_batch_size: -8", "micro_batch_size: -1"})
        check_has(refusal(fmt::format("train: {{{}}}\n", zero)), "allowed: an integer 1 to");
    check_has(refusal("train: {micro_batch_size: 1e9, gradient_accumulation_steps: 1e9}\ngrid: {dp: 2e9}\n"),
              "is more than 1000000000000 sequences");
    CHECK(load("train: {micro_batch_size: 1, gradient_accumulation_steps: 65536}\n").train.global_batch_size == 65536);
    check_has(refusal("train: {micro_batch_size: 1, gradient_accumulation_steps: 65537}\n"),
              "found 65537 micro-batches per rank and step, allowed: up to 65536");
}

TEST_CASE_FIXTURE(ConfigFixture, "only dp enters the batch") {
    job.ranks = 16;
    const Config c = load("grid: {tp: 2, pp: 2, sp: 2}\ntrain: {micro_batch_size: 2, gradient_accumulation_steps: 3}\n");
    CHECK(c.grid.dp == 2);
    CHECK(c.train.global_batch_size == 12);
}

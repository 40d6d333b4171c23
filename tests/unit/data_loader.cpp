#include <doctest.h>

#include "data/loader.hpp"

#include <algorithm>
#include <atomic>

using namespace quadrille;

namespace {

// Sample i holds i, i, i, …; sample `bad_` throws.
class Numbered final : public SampleSet {
  public:
    explicit Numbered(std::int64_t bad = -1) : SampleSet(3), bad_(bad) {}
    std::int64_t count() const override { return 1000; }
    std::int64_t tokens() const override { return 3001; }
    void read(std::int64_t sample, Window& out) const override {
        if (sample == bad_) throw Error(Exit::io_failed, "sample " + std::to_string(sample) + " is bad");
        std::fill(out.tokens.begin(), out.tokens.end(), static_cast<std::int32_t>(sample));
        out.length = 4;
        ++reads;
    }
    mutable std::atomic<int> reads = 0;

  private:
    std::int64_t bad_;
};

}  // namespace

TEST_CASE("the same batches at every depth, from any step on") {
    const auto samples = std::make_shared<Numbered>();
    const BatchReader reader(samples, SampleOrder::training, 6, true, 4);
    const SequenceBlock block{.dp = 3, .dp_rank = 2, .micro_batch = 2, .accumulation = 1};
    for (const std::int64_t first : {0, 17}) {
        for (const int depth : {1, 2, 5, 300}) {
            Loader loader(reader, block, first, first + 200, depth);
            for (std::int64_t step = first; step < first + 200; ++step) {
                const StepBatch& got = loader.next();
                Batch expected;
                reader.read(step, std::vector<std::int64_t>{4, 5}, expected);
                REQUIRE(got.step == step);
                REQUIRE(got.batch.tokens == expected.tokens);
                REQUIRE(got.batch.hash == expected.hash);
            }
            CHECK_THROWS_AS(loader.next(), std::logic_error);
        }
    }
}

TEST_CASE("no more than depth batches are read ahead") {
    const auto samples = std::make_shared<Numbered>();
    const BatchReader reader(samples, SampleOrder::training, 1);
    Loader loader(reader, {}, 0, 100, 3);
    for (int step = 0; step < 50; ++step) {
        loader.next();
        CHECK(samples->reads <= step + 4);
    }
}

TEST_CASE("what the reading throws comes out of next, at its step, again and again") {
    for (const int depth : {1, 2}) {
        const BatchReader reader(std::make_shared<Numbered>(7), SampleOrder::training, 2);
        Loader loader(reader, {.dp = 1, .dp_rank = 0, .micro_batch = 1, .accumulation = 2}, 0, 100, depth);
        for (int step = 0; step < 3; ++step) CHECK(loader.next().step == step);
        for (int again = 0; again < 2; ++again) {
            try {
                loader.next();
                FAIL("no error");
            } catch (const Error& e) {
                CHECK(e.exit() == Exit::io_failed);
                CHECK(std::string(e.what()) == "sample 7 is bad");
            }
        }
    }
}

TEST_CASE("it can be destroyed at any moment: unused, half used, all read, failed") {
    const BatchReader reader(std::make_shared<Numbered>(), SampleOrder::training, 1), bad(std::make_shared<Numbered>(0), SampleOrder::training, 1);
    for (int round = 0; round < 100; ++round) {
        Loader unused(reader, {}, 0, 1000, 2), failed(bad, {}, 0, 10, 2), empty(reader, {}, 5, 5, 2);
        Loader half(reader, {}, 0, 1000, 2), whole(reader, {}, 0, 2, 4);
        half.next();
        whole.next();
        whole.next();
    }
}

TEST_CASE("blocks that do not make the global batch are the caller's error") {
    const BatchReader reader(std::make_shared<Numbered>(), SampleOrder::training, 6);
    CHECK_THROWS_AS(Loader(reader, {.dp = 2, .dp_rank = 0, .micro_batch = 2, .accumulation = 2}, 0, 1, 1), std::logic_error);
    CHECK_THROWS_AS(Loader(reader, {.dp = 2, .dp_rank = 2, .micro_batch = 3, .accumulation = 1}, 0, 1, 1), std::logic_error);
    CHECK_THROWS_AS(Loader(reader, {.dp = 1, .dp_rank = 0, .micro_batch = 3, .accumulation = 2}, 0, 1, 0), std::logic_error);
}

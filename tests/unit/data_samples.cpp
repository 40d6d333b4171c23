// Windows and documents, against the definition worked out here on whole arrays.
#include <doctest.h>

#include "data/samples.hpp"

#include <algorithm>

using namespace quadrille;

namespace {

// Tokens and document begins held in memory.
class ArraySource final : public TokenSource {
  public:
    explicit ArraySource(std::vector<std::int32_t> ids, std::vector<std::int64_t> begins = {}) : ids_(std::move(ids)), begins_(std::move(begins)) {}
    std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
    void read(std::int64_t position, std::span<std::int32_t> out, Exit) const override {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = ids_.at(static_cast<std::size_t>(position) + i);
    }
    bool has_documents() const override { return true; }
    void document_begins(std::int64_t position, std::span<std::uint8_t> begins) const override {
        for (std::size_t i = 0; i < begins.size(); ++i)
            begins[i] = std::count(begins_.begin(), begins_.end(), position + static_cast<std::int64_t>(i)) != 0;
    }
    std::int64_t next_cut(std::int64_t position) const override { return position; }
    bool ids_always_valid() const override { return true; }
    std::int64_t files() const override { return 1; }
    std::int64_t bytes() const override { return 4 * size(); }
    std::vector<FileMark> marks() const override { return {}; }

  private:
    std::vector<std::int32_t> ids_;
    std::vector<std::int64_t> begins_;
};

std::shared_ptr<const TokenSource> counting(std::int64_t n) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>(100 + i));
    return std::make_shared<ArraySource>(ids);
}

struct Read {
    std::vector<std::int32_t> tokens, starts;
    std::int64_t length = 0;
};

Read read(const SampleSet& samples, std::int64_t i) {
    const auto n = static_cast<std::size_t>(samples.seq_length() + 1);
    Read out{std::vector<std::int32_t>(n, -7), std::vector<std::int32_t>(n, -7)};
    Window window{out.tokens, out.starts};
    samples.read(i, window);
    out.length = window.length;
    return out;
}

}  // namespace

TEST_CASE("a sample is seq_length + 1 tokens, neighbours share one, and the ragged end is dropped") {
    const CorpusSamples samples(counting(15), 0, 15, 4, RaggedEnd::drop);
    CHECK(samples.count() == 3);
    CHECK(read(samples, 0).tokens == std::vector<std::int32_t>{100, 101, 102, 103, 104});
    CHECK(read(samples, 2).tokens == std::vector<std::int32_t>{108, 109, 110, 111, 112});
    CHECK(read(samples, 2).length == 5);
    CHECK(read(samples, 2).starts == std::vector<std::int32_t>(5, 0));
    CHECK_THROWS_AS(read(samples, 3), std::logic_error);
}

TEST_CASE("counts at the edges") {
    const auto count = [](std::int64_t n, RaggedEnd ragged) { return CorpusSamples(counting(n), 0, n, 4, ragged).count(); };
    CHECK(count(5, RaggedEnd::drop) == 1);
    CHECK(count(8, RaggedEnd::drop) == 1);
    CHECK(count(9, RaggedEnd::drop) == 2);
    CHECK(count(4, RaggedEnd::drop) == 1);  // padded: there is nothing else
    CHECK(count(2, RaggedEnd::drop) == 1);
    CHECK(count(5, RaggedEnd::pad) == 1);
    CHECK(count(6, RaggedEnd::pad) == 2);
    CHECK(count(9, RaggedEnd::pad) == 2);
    CHECK(count(2, RaggedEnd::pad) == 1);
    CHECK_THROWS_AS(count(1, RaggedEnd::drop), std::logic_error);
}

TEST_CASE("padding: every token of a held-out set is a target exactly once") {
    const CorpusSamples samples(counting(30), 3, 25, 4, RaggedEnd::pad);
    std::vector<int> as_target(30);
    for (std::int64_t i = 0; i < samples.count(); ++i) {
        const Read r = read(samples, i);
        for (std::int64_t t = 1; t < r.length; ++t) ++as_target[static_cast<std::size_t>(r.tokens[static_cast<std::size_t>(t)] - 100)];
        for (auto t = static_cast<std::size_t>(r.length); t < 5; ++t) CHECK(r.tokens[t] == 0);
    }
    for (int i = 0; i < 30; ++i) CHECK(as_target[static_cast<std::size_t>(i)] == (i > 3 && i < 25));
}

TEST_CASE("documents by token: the token belongs to the document that it ends") {
    const std::vector<std::int32_t> ids = {5, 9, 6, 7, 9, 9, 8, 8, 8, 9, 1, 2, 3};
    const CorpusSamples samples(std::make_shared<ArraySource>(ids), 0, 13, 4, RaggedEnd::pad, Documents::by_token, 9);
    CHECK(read(samples, 0).starts == std::vector<std::int32_t>{0, 0, 2, 2, 2});
    CHECK(read(samples, 1).starts == std::vector<std::int32_t>{0, 1, 2, 2, 2});  // 9 | 9 | 8 8 8
    CHECK(read(samples, 2).starts == std::vector<std::int32_t>{0, 0, 2, 2, 2});
}

TEST_CASE("documents by source, and padding that stays in the last document") {
    const std::vector<std::int32_t> ids = {5, 9, 6, 7, 9, 9, 8};
    const auto source = std::make_shared<ArraySource>(ids, std::vector<std::int64_t>{0, 3, 4, 6});
    const CorpusSamples samples(source, 0, 7, 4, RaggedEnd::pad, Documents::by_source);
    CHECK(read(samples, 0).starts == std::vector<std::int32_t>{0, 0, 0, 3, 4});
    const Read last = read(samples, 1);
    CHECK(last.length == 3);
    CHECK(last.starts == std::vector<std::int32_t>{0, 0, 2, 2, 2});
    const CorpusSamples blind(source, 0, 7, 4, RaggedEnd::pad);
    CHECK(read(blind, 1).starts == std::vector<std::int32_t>(5, 0));
}

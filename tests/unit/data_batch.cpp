// The global order and the batches: permutations, epochs, what is counted, and that no grid changes any of it.
#include <doctest.h>

#include "data/batch.hpp"
#include "data/loader.hpp"
#include "data/source.hpp"
#include "unit/data_files.hpp"

#include <algorithm>
#include <numeric>
#include <set>

using namespace quadrille;
using namespace data_files;

namespace {

// A text of `n` bytes whose every two neighbours tell the position, as samples.
std::shared_ptr<const SampleSet> text_samples(const Folder& dir, std::int64_t n, std::int64_t seq_length, RaggedEnd ragged,
                                              Documents documents = Documents::none, std::int32_t end_of_document = -1) {
    std::string text;
    for (std::int64_t i = 0; i < n; ++i) text += static_cast<char>(i % 2 ? 1 + i / 2 % 120 : 128 + i / 240 % 120);
    DataConfig data;
    Remarks remarks;
    const auto source = open_source(data, {dir.write("text", text)}, 256, remarks);
    return std::make_shared<CorpusSamples>(source, 0, n, seq_length, ragged, documents, end_of_document);
}

std::vector<std::int64_t> all_indices(std::int64_t n) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

std::vector<std::int64_t> order(const BatchReader& reader, std::int64_t positions) {
    std::vector<std::int64_t> out;
    for (std::int64_t p = 0; p < positions; ++p) out.push_back(*reader.sample(p / reader.global_batch(), p % reader.global_batch()));
    return out;
}

}  // namespace

TEST_CASE("a corpus of 3.5 samples asked for 100: every epoch a permutation, counts differ by one at most") {
    const Folder dir;
    const auto samples = text_samples(dir, 1 + 3 * 8 + 4, 8, RaggedEnd::drop);
    REQUIRE(samples->count() == 3);
    for (const bool shuffle : {true, false}) {
        const BatchReader reader(samples, SampleOrder::training, 5, shuffle, 1);
        const auto seen = order(reader, 100);
        std::vector<int> counts(3);
        for (std::size_t p = 0; p < 100; ++p) {
            ++counts.at(static_cast<std::size_t>(seen[p]));
            CHECK(*std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end()) <= 1);
            const auto here = seen.begin() + static_cast<long>(p);
            if (p % 3 == 2) CHECK(std::set<std::int64_t>(here - 2, here + 1).size() == 3);
            if (!shuffle) CHECK(seen[p] == static_cast<std::int64_t>(p % 3));
        }
        Batch batch;
        reader.read(19, all_indices(5), batch);
        CHECK(batch.counted == 40);
    }
}

TEST_CASE("seeds and epochs give different orders, one seed one order, whatever the global batch") {
    const Folder dir;
    const auto samples = text_samples(dir, 1 + 100 * 4, 4, RaggedEnd::drop);
    const auto of = [&](std::uint64_t seed, std::int64_t global) {
        return order(BatchReader(samples, SampleOrder::training, global, true, seed), 300);
    };
    CHECK(of(1, 10) == of(1, 10));
    CHECK(of(1, 10) == of(1, 7));
    CHECK(of(1, 10) != of(2, 10));
    const auto seen = of(1, 10);
    for (int e = 0; e < 3; ++e) {
        std::vector<std::int64_t> epoch(seen.begin() + e * 100, seen.begin() + (e + 1) * 100);
        if (e > 0) CHECK(!std::equal(epoch.begin(), epoch.end(), seen.begin()));
        CHECK(!std::is_sorted(epoch.begin(), epoch.end()));
        std::sort(epoch.begin(), epoch.end());
        CHECK(epoch == all_indices(100));
    }
}

TEST_CASE("inputs, targets and what counts") {
    const Folder dir;
    const BatchReader reader(text_samples(dir, 30, 6, RaggedEnd::drop), SampleOrder::training, 2);
    Batch batch;
    reader.read(1, std::vector<std::int64_t>{1, 0}, batch);
    const std::string text = read_all(dir / "text");
    for (std::size_t i = 0; i < 6; ++i) {
        CHECK(batch.tokens[i] == static_cast<std::uint8_t>(text[18 + i]));
        CHECK(batch.targets[i] == static_cast<std::uint8_t>(text[19 + i]));
        CHECK(batch.tokens[6 + i] == static_cast<std::uint8_t>(text[12 + i]));
        CHECK(batch.mask[i] == 1);
    }
    CHECK(batch.counted == 12);
    CHECK_THROWS_AS(reader.read(0, std::vector<std::int64_t>{2}, batch), std::logic_error);
}

TEST_CASE("loss stops at documents: the target of an end-of-document token does not count") {
    const Folder dir;
    DataConfig data;
    Remarks remarks;
    const auto source = open_source(data, {dir.write("a", "ab|cde||fghijklm|")}, 256, remarks);
    const CorpusSamples masked(source, 0, 17, 8, RaggedEnd::drop, Documents::by_token, '|'), open(source, 0, 17, 8, RaggedEnd::drop);
    Batch batch;
    BatchReader(std::make_shared<CorpusSamples>(masked), SampleOrder::training, 2).read(0, all_indices(2), batch);
    CHECK(batch.mask == std::vector<std::uint8_t>{1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
    CHECK(batch.document_start == std::vector<std::int32_t>{0, 0, 0, 3, 3, 3, 3, 7, 0, 0, 0, 0, 0, 0, 0, 0});
    CHECK(batch.counted == 13);
    BatchReader(std::make_shared<CorpusSamples>(open), SampleOrder::training, 2).read(0, all_indices(2), batch);
    CHECK(batch.counted == 16);
    CHECK(batch.document_start == std::vector<std::int32_t>(16, 0));
}

TEST_CASE("the union over dp ranks is the serial batch, for every dp and micro-batch size; hashes add up") {
    const Folder dir;
    const auto samples = text_samples(dir, 1000, 16, RaggedEnd::drop);
    const BatchReader reader(samples, SampleOrder::training, 24, true, 9);
    for (const std::int64_t step : {std::int64_t{0}, std::int64_t{5}, std::int64_t{1} << 40}) {
        Batch serial;
        reader.read(step, all_indices(24), serial);
        for (const std::int64_t dp : {1, 2, 3, 4}) {
            for (const std::int64_t micro : {1, 2}) {
                std::uint64_t hash = 0;
                std::int64_t counted = 0;
                std::vector<int> hits(24);
                for (std::int64_t rank = 0; rank < dp; ++rank) {
                    const SequenceBlock block{.dp = dp, .dp_rank = rank, .micro_batch = micro, .accumulation = 24 / dp / micro};
                    const auto indices = block.indices();
                    Batch part;
                    reader.read(step, indices, part);
                    hash += part.hash;
                    counted += part.counted;
                    for (std::size_t row = 0; row < indices.size(); ++row) {
                        ++hits.at(static_cast<std::size_t>(indices[row]));
                        CHECK(std::equal(part.tokens.begin() + static_cast<long>(row) * 16, part.tokens.begin() + static_cast<long>(row + 1) * 16,
                                         serial.tokens.begin() + indices[row] * 16));
                    }
                }
                CHECK(hash == serial.hash);
                CHECK(counted == serial.counted);
                CHECK(hits == std::vector<int>(24, 1));
            }
        }
    }
    CHECK(SequenceBlock{.dp = 2, .dp_rank = 1, .micro_batch = 2, .accumulation = 3}.indices() == std::vector<std::int64_t>{2, 3, 6, 7, 10, 11});
}

TEST_CASE("the hash tells order and content") {
    const Folder dir;
    const BatchReader reader(text_samples(dir, 1000, 16, RaggedEnd::drop), SampleOrder::training, 4);
    Batch a, b;
    reader.read(0, all_indices(4), a);
    reader.read(1, all_indices(4), b);
    CHECK(a.hash != b.hash);
    reader.read(0, std::vector<std::int64_t>{3, 1, 0, 2}, b);
    CHECK(a.hash == b.hash);  // the order of asking is the reader's affair, not the batch's
    const BatchReader one(text_samples(dir, 34, 16, RaggedEnd::drop), SampleOrder::training, 2, true, 1);
    std::set<std::uint64_t> hashes;
    for (std::int64_t step = 0; step < 40; ++step) {
        one.read(step, all_indices(2), a);
        hashes.insert(a.hash);
    }
    CHECK(hashes.size() == 2);  // samples 0, 1 and samples 1, 0
}

TEST_CASE("a run that is gone on with reads what comes next, by batches of its own size, across epochs") {
    const Folder dir;
    const auto samples = text_samples(dir, 1 + 9 * 4, 4, RaggedEnd::drop);
    const BatchReader whole(samples, SampleOrder::training, 2, true, 3);
    for (const std::int64_t size : {1, 2, 3, 8}) {
        const BatchReader rest(samples, SampleOrder::training, size, true, 3, {.step = 7, .sequences = 14});
        CHECK(rest.read_before(7) == 14);
        CHECK(rest.read_before(9) == 14 + 2 * size);
        for (std::int64_t p = 14; p < 60; ++p)
            CHECK(rest.sample(7 + (p - 14) / size, (p - 14) % size) == whole.sample(p / 2, p % 2));
    }
    CHECK_THROWS(BatchReader(samples, SampleOrder::training, 2, true, 3, {.step = 7, .sequences = 14}).sample(6, 0));
}

TEST_CASE("N mod global batch = 1: the epochs wrap and every step is full") {
    const Folder dir;
    const BatchReader reader(text_samples(dir, 1 + 9 * 4, 4, RaggedEnd::drop), SampleOrder::training, 8, true, 3);
    REQUIRE(reader.samples().count() == 9);
    for (std::int64_t step = 0; step < 20; ++step) {
        Batch batch;
        reader.read(step, all_indices(8), batch);
        CHECK(batch.counted == 32);
    }
}

TEST_CASE("evaluation takes each token once and fills up with nothing") {
    const Folder dir;
    for (const std::int64_t n : {2, 5, 6, 30, 33, 34}) {
        const BatchReader reader(text_samples(dir, n, 4, RaggedEnd::pad), SampleOrder::evaluation, 4);
        std::int64_t counted = 0;
        for (std::int64_t b = 0; b < reader.batches(); ++b) {
            Batch batch;
            reader.read(b, all_indices(4), batch);
            CHECK(batch.counted > 0);
            counted += batch.counted;
            for (std::size_t i = 0; i < batch.mask.size(); ++i)
                if (!batch.mask[i]) CHECK((batch.targets[i] == 0 && batch.document_start[i] == 0));
        }
        CHECK(counted == n - 1);
        Batch beyond;
        reader.read(reader.batches(), all_indices(4), beyond);
        CHECK(beyond.counted == 0);
    }
}

TEST_CASE("a training corpus shorter than one sequence is one padded sample") {
    const Folder dir;
    const BatchReader reader(text_samples(dir, 5, 8, RaggedEnd::drop), SampleOrder::training, 2, true, 1);
    Batch batch;
    reader.read(7, all_indices(2), batch);
    CHECK(batch.mask == std::vector<std::uint8_t>{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0});
    CHECK(batch.counted == 8);
}

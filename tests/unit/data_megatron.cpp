// Megatron .bin/.idx pairs against a plain reader written here, and every damaged field with what its refusal must name.
#include <doctest.h>

#include "data/source.hpp"
#include "unit/data_files.hpp"

#include <algorithm>
#include <cstring>
#include <random>

using namespace quadrille;
using namespace data_files;

namespace {

using Ids = std::vector<std::int64_t>;
using Sequences = std::vector<Ids>;

struct Reference {
    Ids ids;
    std::vector<std::uint8_t> begins;
};

// Reads the pair the plain way: the whole of both files, one field after the other. Knows widths 1 to 8 by the type code.
Reference plain_reader(const std::string& prefix) {
    const std::string index = read_all(prefix + ".idx"), bin = read_all(prefix + ".bin");
    const auto at = [&]<class T>(std::size_t offset, T) {
        T value;
        std::memcpy(&value, index.data() + offset, sizeof(T));
        return value;
    };
    const int type = at(17, std::uint8_t{});
    const std::size_t n = at(18, std::uint64_t{}), d = at(26, std::uint64_t{});
    Reference out;
    std::vector<std::size_t> first;
    for (std::size_t s = 0; s < n; ++s) {
        first.push_back(out.ids.size());
        const auto length = at(34 + 4 * s, std::int32_t{});
        const auto from = at(34 + 4 * n + 8 * s, std::int64_t{});
        for (std::int32_t i = 0; i < length; ++i) {
            const char* p = bin.data() + from;
            switch (type) {
                case 1: out.ids.push_back(reinterpret_cast<const std::uint8_t*>(p)[i]); break;
                case 2: out.ids.push_back(reinterpret_cast<const std::int8_t*>(p)[i]); break;
                case 3: out.ids.push_back(reinterpret_cast<const std::int16_t*>(p)[i]); break;
                case 4: out.ids.push_back(reinterpret_cast<const std::int32_t*>(p)[i]); break;
                case 5: out.ids.push_back(reinterpret_cast<const std::int64_t*>(p)[i]); break;
                case 8: out.ids.push_back(reinterpret_cast<const std::uint16_t*>(p)[i]); break;
                default: FAIL("unknown type");
            }
        }
    }
    first.push_back(out.ids.size());
    out.begins.resize(out.ids.size());
    for (std::size_t i = 0; i < d; ++i) {
        const std::size_t p = first[static_cast<std::size_t>(at(34 + 12 * n + 8 * i, std::int64_t{}))];
        if (p < out.begins.size()) out.begins[p] = 1;
    }
    return out;
}

std::shared_ptr<const TokenSource> open_pair(const std::vector<std::string>& paths, std::int64_t vocab, Remarks& remarks) {
    DataConfig data;
    data.format = DataFormat::megatron;
    return open_source(data, paths, vocab, remarks);
}

void check_against_reference(const std::string& prefix, std::int64_t vocab) {
    Remarks remarks;
    const auto source = open_pair({prefix}, vocab, remarks);
    CHECK(remarks.warnings.empty());
    const Reference expected = plain_reader(prefix);
    const auto n = static_cast<std::int64_t>(expected.ids.size());
    REQUIRE(source->size() == n);
    for (const std::int64_t piece : {std::int64_t{1}, std::int64_t{7}, n}) {
        for (std::int64_t at = 0; at < n; at += piece) {
            const auto count = static_cast<std::size_t>(std::min(piece, n - at));
            std::vector<std::int32_t> ids(count);
            std::vector<std::uint8_t> begins(count);
            source->read(at, ids);
            source->document_begins(at, begins);
            REQUIRE(std::equal(ids.begin(), ids.end(), expected.ids.begin() + at));
            REQUIRE(std::equal(begins.begin(), begins.end(), expected.begins.begin() + at));
        }
    }
    for (std::int64_t at = 0; at <= n; ++at) {
        const auto next = std::find(expected.begins.begin() + at, expected.begins.end(), std::uint8_t{1}) - expected.begins.begin();
        REQUIRE(source->next_cut(at) == next);
    }
}

template <class T>
std::string write_pair(const Folder& dir, const std::string& name, const Sequences& sequences, int type, Ids ends) {
    dir.write(name + ".bin", sequence_bytes<T>(sequences));
    dir.write(name + ".idx", index_of(sequences, sizeof(T), type, std::move(ends)).bytes());
    return dir / name;
}

std::string refusal(const std::string& path, std::int64_t vocab = 1000) {
    try {
        Remarks remarks;
        open_pair({path}, vocab, remarks);
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::refused);
        return e.what();
    }
    return "";
}

void check_names(const std::string& message, const std::vector<std::string>& parts) {
    INFO(message);
    for (const std::string& part : parts) CHECK_MESSAGE(message.find(part) != std::string::npos, part);
}

const Sequences four = {{1, 2, 3}, {4}, {5, 6, 7, 8}, {9, 10}};

}  // namespace

TEST_CASE("good pairs of every integer type") {
    const Folder dir;
    check_against_reference(write_pair<std::uint8_t>(dir, "u8", four, 1, {0, 1, 2, 3, 4}), 1000);
    check_against_reference(write_pair<std::int8_t>(dir, "i8", four, 2, {0, 1, 2, 3, 4}), 1000);
    check_against_reference(write_pair<std::int16_t>(dir, "i16", four, 3, {0, 1, 2, 3, 4}), 1000);
    check_against_reference(write_pair<std::int32_t>(dir, "i32", four, 4, {0, 1, 2, 3, 4}), 1000);
    check_against_reference(write_pair<std::int64_t>(dir, "i64", four, 5, {0, 1, 2, 3, 4}), 1000);
    check_against_reference(write_pair<std::uint16_t>(dir, "u16", {{1, 65535}, {65500}}, 8, {0, 1, 2}), 65536);
}

TEST_CASE("documents of several sequences, empty sequences first, in the middle and last") {
    const Folder dir;
    check_against_reference(write_pair<std::uint16_t>(dir, "a", four, 8, {0, 2, 4}), 1000);
    check_against_reference(write_pair<std::uint16_t>(dir, "b", {{}, {1, 2}, {3}}, 8, {0, 1, 2, 3}), 1000);
    check_against_reference(write_pair<std::uint16_t>(dir, "c", {{1, 2}, {}, {}, {3}}, 8, {0, 1, 2, 3, 4}), 1000);
    check_against_reference(write_pair<std::uint16_t>(dir, "d", {{1, 2}, {3}, {}}, 8, {0, 1, 2, 3}), 1000);
    check_against_reference(write_pair<std::uint16_t>(dir, "e", {{}, {}, {1}, {}, {}}, 8, {0, 2, 2, 5}), 1000);
}

TEST_CASE("many sequences, stored out of order") {
    const Folder dir;
    std::mt19937_64 random(5);
    Sequences sequences;
    Ids ends = {0};
    for (int i = 0; i < 1000; ++i) {
        sequences.emplace_back(random() % 3 == 0 ? 0 : random() % 9);
        for (auto& id : sequences.back()) id = static_cast<std::int64_t>(random() % 60000);
        if (random() % 2) ends.push_back(i + 1);
    }
    ends.push_back(1000);
    check_against_reference(write_pair<std::uint16_t>(dir, "in_order", sequences, 8, ends), 65536);
    Index index = index_of(sequences, 4, 4, ends);
    std::string bin;
    for (std::size_t i = sequences.size(); i-- > 0;) {
        index.offsets[i] = static_cast<std::int64_t>(bin.size());
        bin += array_of<std::int32_t>(sequences[i]);
    }
    dir.write("reversed.bin", bin);
    dir.write("reversed.idx", index.bytes());
    check_against_reference(dir / "reversed", 65536);
}

TEST_CASE("the prefix may carry either extension, and a pair named twice counts once") {
    const Folder dir;
    const auto prefix = write_pair<std::uint16_t>(dir, "corpus_text_document", four, 8, {0, 4});
    Remarks remarks;
    for (const char* end : {"", ".bin", ".idx"}) CHECK(open_pair({prefix + end}, 1000, remarks)->size() == 10);
    CHECK(open_pair({prefix + ".bin", prefix + ".idx"}, 1000, remarks)->size() == 10);
    const auto other = write_pair<std::int32_t>(dir, "other", {{7}}, 4, {0, 1});
    const auto both = open_pair({prefix, other}, 1000, remarks);
    std::vector<std::int32_t> end(3);
    both->read(8, end);
    CHECK(end == std::vector<std::int32_t>{9, 10, 7});
    std::vector<std::uint8_t> begins(3);
    both->document_begins(8, begins);
    CHECK(begins == std::vector<std::uint8_t>{0, 0, 1});
    CHECK(both->next_cut(1) == 10);
    CHECK(both->next_cut(11) == 11);
}

TEST_CASE("damaged indexes are refused by field") {
    const Folder dir;
    struct Row { const char* what; void (*damage)(Index&); std::vector<std::string> names; };
    const std::vector<Row> rows = {
        {"magic", [](Index& i) { i.magic[0] = 'X'; }, {"magic", "MMIDIDX"}},
        {"old magic", [](Index& i) { i.magic = std::string("TNTIDX\0\0\0", 9); }, {"magic", "old fairseq"}},
        {"version 2", [](Index& i) { i.version = 2; }, {"version", "2", "1 is expected"}},
        {"float64", [](Index& i) { i.type = 6; }, {"type code", "6", "floating"}},
        {"float32", [](Index& i) { i.type = 7; }, {"type code", "7", "floating"}},
        {"type 0", [](Index& i) { i.type = 0; }, {"type code", "0"}},
        {"type 9", [](Index& i) { i.type = 9; }, {"type code", "9"}},
        {"last end", [](Index& i) { i.ends.back() = 3; }, {"document ends", "3", "count 4"}},
        {"last end beyond", [](Index& i) { i.ends.back() = 5; }, {"document ends", "5", "count 4"}},
        {"no ends", [](Index& i) { i.ends.clear(); }, {"document count", "0"}},
        {"only the first end", [](Index& i) { i.ends = {0}; }, {"document ends", "last is 0", "4"}},
        {"first end", [](Index& i) { i.ends[0] = 1; }, {"document ends", "first is 1"}},
        {"falling ends", [](Index& i) { i.ends = {0, 3, 2, 4}; }, {"document ends", "2", "3"}},
        {"negative length", [](Index& i) { i.lengths[1] = -1; }, {"sequence lengths", "sequence 1", "-1"}},
        {"offset beyond", [](Index& i) { i.offsets[3] = 18; }, {"byte offsets", "sequence 3", "18", "20 bytes"}},
        {"offset far beyond", [](Index& i) { i.offsets[3] = INT64_MAX - 1; }, {"byte offsets", "sequence 3"}},
        {"negative offset", [](Index& i) { i.offsets[2] = -2; }, {"byte offsets", "sequence 2", "-2"}},
        {"odd offset", [](Index& i) { i.offsets[2] = 7; }, {"byte offsets", "sequence 2", "7", "multiple of 2"}},
        {"length beyond", [](Index& i) { i.lengths[3] = INT32_MAX; }, {"byte offsets", "sequence 3", "20 bytes"}},
        {"too many sequences", [](Index& i) { i.sequences = 5; }, {"sequence count 5"}},
        {"absurd sequences", [](Index& i) { i.sequences = INT64_MIN; }, {"truncated", "sequence count 9223372036854775808"}},
        {"absurd documents", [](Index& i) { i.documents = INT64_MAX; }, {"truncated", "document count 9223372036854775807"}},
        {"too few documents", [](Index& i) { i.documents = 4; }, {"size", "4 document ends"}},
        {"image modes", [](Index& i) { i.modes = {0, 0, 1, 0}; }, {"sequence modes", "sequence 2", "mode 1"}},
        {"part of the modes", [](Index& i) { i.modes = {0, 0, 0}; }, {"size"}},
        {"all empty", [](Index& i) { i.lengths = {0, 0, 0, 0}; }, {"no tokens"}},
    };
    dir.write("x.bin", sequence_bytes<std::uint16_t>(four));
    for (const Row& row : rows) {
        INFO(row.what);
        Index index = index_of(four, 2, 8, {0, 1, 2, 3, 4});
        row.damage(index);
        dir.write("x.idx", index.bytes());
        const std::string message = refusal(dir / "x");
        check_names(message, row.names);
        check_names(message, {dir / "x.idx"});
    }
    Index index = index_of(four, 2, 8, {0, 1, 2, 3, 4});
    index.modes = {0, 0, 0, 0};
    dir.write("x.idx", index.bytes());
    CHECK(refusal(dir / "x").empty());
}

TEST_CASE("truncated, missing and swapped files") {
    const Folder dir;
    const auto prefix = write_pair<std::uint16_t>(dir, "x", four, 8, {0, 1, 2, 3, 4});
    const std::string index = read_all(prefix + ".idx"), bin = read_all(prefix + ".bin");
    for (std::size_t n = 0; n < index.size(); ++n) {
        dir.write("x.idx", index.substr(0, n));
        REQUIRE(!refusal(prefix).empty());
    }
    check_names(refusal(prefix), {"x.idx"});
    dir.write("x.idx", bin);
    dir.write("x.bin", index);
    check_names(refusal(prefix), {"x.idx", "truncated"});
    dir.write("x.idx", std::string(100, 'a'));
    check_names(refusal(prefix), {"x.idx", "magic"});
    dir.write("x.idx", index);
    dir.write("x.bin", bin.substr(0, 19));
    check_names(refusal(prefix), {"byte offsets", "19 bytes", "x.bin"});
    std::filesystem::remove(prefix + ".bin");
    check_names(refusal(prefix), {"x.bin", "No such file"});
    dir.write("x.bin", bin);
    std::filesystem::remove(prefix + ".idx");
    check_names(refusal(prefix), {"x.idx", "No such file"});
}

TEST_CASE("an index that is cut in mid run is an error, not a crash") {
    const Folder dir;
    std::vector<std::vector<std::int64_t>> sequences(20000, std::vector<std::int64_t>(3, 7));
    dir.write("m.bin", array_of<std::uint16_t>(std::vector<int>(60000, 7)));
    dir.write("m.idx", index_of(sequences, 2, 8, {0, 10000, 20000}).bytes());
    Remarks remarks;
    DataConfig data;
    data.format = DataFormat::megatron;
    const auto source = open_source(data, {dir / "m"}, 100, remarks);
    CHECK(source->marks().size() == 2);
    REQUIRE(rename((dir / "m.idx").c_str(), (dir / "old").c_str()) == 0);
    std::filesystem::resize_file(dir / "old", 1000);
    std::vector<std::int32_t> part(10);
    std::vector<std::uint8_t> begins(10);
    CHECK_THROWS_WITH_AS(source->read(50000, part), doctest::Contains("m.idx: has been cut to 1000 bytes"), Error);
    CHECK_THROWS_WITH_AS(source->document_begins(50000, begins), doctest::Contains("m.idx: has been cut to 1000 bytes"), Error);
    CHECK_THROWS_WITH_AS(source->next_cut(50000), doctest::Contains("m.idx: has been cut to 1000 bytes"), Error);
}

TEST_CASE("ids outside of the vocabulary and bytes of no sequence") {
    const Folder dir;
    const auto prefix = write_pair<std::int32_t>(dir, "x", {{1, 2}, {3, -4}}, 4, {0, 2});
    check_names(refusal(prefix), {"x.bin", "-4", "byte 12"});
    const auto other = write_pair<std::int64_t>(dir, "y", {{1, 5000000000}}, 5, {0, 1});
    check_names(refusal(other), {"y.bin", "5000000000", "byte 8"});
    const auto third = write_pair<std::uint16_t>(dir, "z", four, 8, {0, 4});
    dir.write("z.bin", sequence_bytes<std::uint16_t>(four) + "1234");
    Remarks remarks;
    open_pair({third}, 1000, remarks);
    REQUIRE(remarks.warnings.size() == 1);
    check_names(remarks.warnings[0], {"z.bin", "4 bytes"});
}

// Text, raw tokens and llm.c shards: what is read, and every kind of bad file with what its refusal must name.
#include <doctest.h>

#include "data/source.hpp"
#include "unit/data_files.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

using namespace quadrille;
using namespace data_files;

namespace {

using Ids = std::vector<std::int64_t>;

std::shared_ptr<const TokenSource> open_as(DataFormat format, const std::vector<std::string>& paths, std::int64_t vocab, Remarks& remarks,
                                           TokenType dtype = TokenType::uint16) {
    DataConfig data;
    data.format = format;
    data.dtype = dtype;
    return open_source(data, paths, vocab, remarks);
}

std::shared_ptr<const TokenSource> open_as(DataFormat format, const std::vector<std::string>& paths, std::int64_t vocab = 70000,
                                           TokenType dtype = TokenType::uint16) {
    Remarks remarks;
    return open_as(format, paths, vocab, remarks, dtype);
}

Ids all(const TokenSource& source) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
    source.read(0, ids);
    return {ids.begin(), ids.end()};
}

// The message of the refusal; "" if there was none. Fails the test on another exit code.
std::string refusal(DataFormat format, const std::vector<std::string>& paths, std::int64_t vocab = 70000,
                    TokenType dtype = TokenType::uint16) {
    try {
        open_as(format, paths, vocab, dtype);
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

}  // namespace

TEST_CASE("text: the bytes of the files in order, empty files between") {
    const Folder dir;
    const auto a = dir.write("a", "hello\n"), b = dir.write("b", ""), c = dir.write("c", "w\xc3\xb6rld");
    const auto source = open_as(DataFormat::text, {a, b, c}, 256);
    CHECK(source->size() == 12);
    CHECK(all(*source) == Ids{'h', 'e', 'l', 'l', 'o', '\n', 'w', 0xc3, 0xb6, 'r', 'l', 'd'});
    std::vector<std::int32_t> part(4);
    source->read(4, part);
    CHECK(part == std::vector<std::int32_t>{'o', '\n', 'w', 0xc3});
    std::vector<std::uint8_t> begins(12);
    source->document_begins(0, begins);
    CHECK(begins == std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0});
    CHECK(source->ids_always_valid());
    CHECK_THROWS_AS(source->read(9, part), std::logic_error);
}

TEST_CASE("a large text is mapped, and reads the same as a small one") {
    const Folder dir;
    std::string text;
    while (text.size() < 300000) text += "line " + std::to_string(text.size()) + "\n";
    const auto source = open_as(DataFormat::text, {dir.write("a", text)}, 256);
    const Ids ids = all(*source);
    CHECK(std::string(ids.begin(), ids.end()) == text);
}

TEST_CASE("raw tokens of both widths") {
    const Folder dir;
    const Ids ids = {0, 1, 65499, 65500, 65534, 65535, 12};
    const auto u16 = dir.write("a.bin", array_of<std::uint16_t>(ids)), u32 = dir.write("b.bin", array_of<std::uint32_t>(ids));
    CHECK(all(*open_as(DataFormat::tokens, {u16}, 65536)) == ids);
    CHECK(all(*open_as(DataFormat::tokens, {u32}, 65536, TokenType::uint32)) == ids);
    CHECK(open_as(DataFormat::tokens, {u16, u16}, 65536)->size() == 14);
}

TEST_CASE("llm.c shards of both widths, mixed") {
    const Folder dir;
    const Ids a = {5, 50256, 65535}, b = {127000, 0, 1};
    const auto first = dir.write("a.bin", llmc_bytes<std::uint16_t>(a, 20240520, 1));
    const auto second = dir.write("b.bin", llmc_bytes<std::uint32_t>(b, 20240801, 7));
    Ids both = a;
    both.insert(both.end(), b.begin(), b.end());
    const auto source = open_as(DataFormat::llmc, {first, second}, 128256);
    CHECK(all(*source) == both);
    CHECK(source->bytes() == 3 * 2 + 3 * 4);
}

TEST_CASE("notes on odd widths") {
    const Folder dir;
    Remarks remarks;
    open_as(DataFormat::tokens, {dir.write("a", array_of<std::uint16_t>(Ids{7, 65535}))}, 100000, remarks);
    REQUIRE(remarks.notes.size() == 1);
    check_names(remarks.notes[0], {"65536", "100000"});
    remarks = {};
    open_as(DataFormat::llmc, {dir.write("b", llmc_bytes<std::uint32_t>({7, 8}, 20240801, 7))}, 50257, remarks);
    REQUIRE(remarks.notes.size() == 1);
    check_names(remarks.notes[0], {"50257"});
    remarks = {};
    open_as(DataFormat::tokens, {dir.write("c", array_of<std::uint16_t>(Ids{7, 65535}))}, 65536, remarks);
    CHECK(remarks.notes.empty());
    CHECK(remarks.warnings.empty());
}

TEST_CASE("bad llm.c shards") {
    const Folder dir;
    const Ids ids = {1, 2, 3};
    const std::string good = llmc_bytes<std::uint16_t>(ids, 20240520, 1);
    struct Row { std::string bytes; std::vector<std::string> names; };
    const std::vector<Row> rows = {
        {good.substr(0, 1024), {"3 tokens", "1030", "1024"}},
        {llmc_bytes<std::uint16_t>({}, 20240520, 1), {"0 tokens"}},
        {llmc_bytes<std::uint16_t>(ids, 20240520, 1, 4), {"4 tokens", "1032", "1030"}},
        {llmc_bytes<std::uint16_t>(ids, 20240520, 1, -5), {"-5 tokens"}},
        {good + "x", {"1031", "1030"}},
        {llmc_bytes<std::uint16_t>(ids, 20240520, 2), {"version 2", "version 1"}},
        {llmc_bytes<std::uint32_t>(ids, 20240801, 1), {"version 1", "version 7"}},
        {llmc_bytes<std::uint16_t>(ids, 20240522, 1), {"evaluation", "20240522", "20240520"}},
        {llmc_bytes<std::uint16_t>(ids, static_cast<std::int32_t>(__builtin_bswap32(20240520u)), 1), {"big-endian", "20240520"}},
        {llmc_bytes<std::uint16_t>(ids, 12345, 1), {"12345", "20240520", "20240801"}},
        {good.substr(0, 100), {"100 bytes", "1024"}},
        {"", {"0 bytes", "1024"}},
        {"ab", {"2 bytes"}},
        {array_of<std::uint16_t>(Ids(2000, 7)), {"magic 458759"}},
        {Index{}.bytes(), {"magic", "Megatron index"}},
        {"\x93NUMPY\x01 and more", {"magic", "NumPy"}},
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto path = dir.write("shard" + std::to_string(i), rows[i].bytes);
        const std::string message = refusal(DataFormat::llmc, {path});
        check_names(message, rows[i].names);
        check_names(message, {path});
    }
}

TEST_CASE("all bad files are named at once") {
    const Folder dir;
    const auto a = dir.write("a", "x"), b = dir.write("b", llmc_bytes<std::uint16_t>({1}, 20240520, 1));
    check_names(refusal(DataFormat::llmc, {a, b, dir / "missing"}), {a, (dir / "missing") + ": No such file"});
    CHECK(refusal(DataFormat::llmc, {a, b}).find(b) == std::string::npos);
    const std::string many = refusal(DataFormat::llmc, std::vector<std::string>(25, a));
    check_names(many, {"and 5 more files"});
}

TEST_CASE("text refuses what is plainly not text") {
    const Folder dir;
    const Ids ids(100, 300);
    check_names(refusal(DataFormat::text, {dir.write("a", llmc_bytes<std::uint16_t>(ids, 20240520, 1))}), {"text", "llm.c", "20240520"});
    check_names(refusal(DataFormat::text, {dir.write("b", Index{}.bytes())}), {"text", "Megatron"});
    check_names(refusal(DataFormat::text, {dir.write("c", array_of<std::uint16_t>(Ids{65, 66}))}), {"offset 1", "binary"});
    check_names(refusal(DataFormat::text, {dir / ""}), {"directory"});
    check_names(refusal(DataFormat::text, {dir / "none"}), {"No such file"});
    check_names(refusal(DataFormat::text, {dir.write("d", "a\nb\xff")}, 200), {"d: token id 255 at byte 3", "vocab_size is 200"});
}

TEST_CASE("raw tokens: odd sizes are refused, suspicious starts warned of") {
    const Folder dir;
    const Ids ids(600, 300);
    check_names(refusal(DataFormat::tokens, {dir.write("odd", "abc")}), {"3 bytes", "uint16"});
    check_names(refusal(DataFormat::tokens, {dir.write("six", "abcdef")}, 70000, TokenType::uint32), {"6 bytes", "uint32"});
    check_names(refusal(DataFormat::tokens, {dir.write("empty", "")}), {"0 bytes"});
    struct Row { std::string bytes, name; };
    const std::vector<Row> rows = {{llmc_bytes<std::uint16_t>(ids, 20240520, 1), "llm.c uint16"},
                                   {llmc_bytes<std::uint32_t>(ids, 20240801, 7), "llm.c uint32"},
                                   {llmc_bytes<std::uint16_t>(ids, 20240522, 1), "llm.c evaluation"},
                                   {Index{}.bytes(), "Megatron index"},
                                   {"plain text, of even length", "text"},
                                   {std::string("\x1f\x8b\x08\x00", 4), "gzip"}};
    for (const Row& row : rows) {
        Remarks remarks;
        std::string bytes = row.bytes;
        if (bytes.size() % 2 != 0) bytes += '\0';
        const auto path = dir.write("raw", bytes);
        open_as(DataFormat::tokens, {path}, 65536, remarks);
        REQUIRE(remarks.warnings.size() == 1);
        check_names(remarks.warnings[0], {path, row.name});
    }
}

// Every format's file under every other format's name. Raw tokens cannot tell: they warn.
TEST_CASE("a file of one format is not taken for another") {
    const Folder dir;
    Ids ids(600, 300);
    ids[7] = 13;
    const std::string raw = array_of<std::uint16_t>(ids);
    struct File { DataFormat format; std::string path; };
    const std::vector<File> files = {
        {DataFormat::text, dir.write("text", std::string(2048, 'a') + "\n\n")},
        {DataFormat::tokens, dir.write("tokens", raw)},
        {DataFormat::llmc, dir.write("llmc", llmc_bytes<std::uint16_t>(ids, 20240520, 1))},
        {DataFormat::megatron, dir.write("pair.idx", index_of({ids}, 2, 8, {0, 1}).bytes())},
        {DataFormat::megatron, dir.write("pair.bin", raw)},
    };
    for (const File& file : files) {
        for (const DataFormat as : {DataFormat::text, DataFormat::llmc, DataFormat::megatron}) {
            const std::string message = refusal(as, {file.path});
            if (as == file.format) CHECK(message.empty());
            else check_names(message, {file.path});
        }
        const bool plain = file.path.ends_with("tokens") || file.path.ends_with(".bin");  // nothing tells these from raw tokens
        Remarks remarks;
        open_as(DataFormat::tokens, {file.path}, 65536, remarks);
        CHECK(remarks.warnings.size() == (plain ? 0 : 1));
    }
}

TEST_CASE("ids outside of the vocabulary: refused when opened, with file, offset and value") {
    const Folder dir;
    Ids ids(100000, 5);
    ids[70001] = 50257;
    const auto good = dir.write("good", array_of<std::uint16_t>(Ids(50, 1)));
    const auto bad = dir.write("bad", array_of<std::uint16_t>(ids));
    check_names(refusal(DataFormat::tokens, {good, bad}, 50257), {bad, "50257", "byte 140002", "50256"});
    CHECK(refusal(DataFormat::tokens, {good, bad}, 50258).empty());
    const auto huge = dir.write("huge", array_of<std::uint32_t>(Ids{1, 4000000000}));
    check_names(refusal(DataFormat::tokens, {huge}, 50257, TokenType::uint32), {"4000000000", "byte 4"});
    check_names(refusal(DataFormat::llmc, {dir.write("s", llmc_bytes<std::uint16_t>({1, 2, 900}, 20240520, 1))}, 900), {"900", "byte 1028"});
}

// A sparse file of 6 GiB: its end can only be right if offsets and positions are 64-bit everywhere.
TEST_CASE("positions beyond 2^31 tokens; bad ids found while reading end the job as I/O") {
    const Folder dir;
    const auto path = dir.write("sparse", "");
    const std::int64_t count = std::int64_t{3} << 30;
    const int file = open(path.c_str(), O_WRONLY);
    REQUIRE(file >= 0);
    if (ftruncate(file, count * 2) != 0) {
        close(file);
        MESSAGE("skipped: this file system has no files of 6 GiB");
        return;
    }
    const std::string tail = array_of<std::uint16_t>(Ids{11, 12, 13, 60000});
    REQUIRE(pwrite(file, tail.data(), tail.size(), count * 2 - 8) == 8);
    close(file);
    const auto source = open_as(DataFormat::tokens, {path}, 50257);
    CHECK(source->size() == count);
    std::vector<std::int32_t> end(3);
    source->read(count - 4, end);
    CHECK(end == std::vector<std::int32_t>{11, 12, 13});
    try {
        source->read(count - 3, end);
        FAIL("a bad id was read");
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::io_failed);
        check_names(e.what(), {path, "60000", std::to_string(count * 2 - 2), "50257"});
    }
}

TEST_CASE("a file that is cut short in mid run is an error, not a crash") {
    const Folder dir;
    const auto path = dir.write("a", array_of<std::uint16_t>(Ids(100000, 3)));
    const auto source = open_as(DataFormat::tokens, {path}, 65536);
    std::filesystem::resize_file(path, 1000);
    std::vector<std::int32_t> part(10);
    source->read(100, part);
    try {
        source->read(90000, part);
        FAIL("lost tokens were read");
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::io_failed);
        check_names(e.what(), {path, "1000", "200000", "180000"});
    }
}

TEST_CASE("a file that loses its name, then its end, is an error all the same") {
    const Folder dir;
    for (const bool renamed : {true, false}) {
        const auto path = dir.write(renamed ? "a" : "b", array_of<std::uint16_t>(Ids(100000, 3)));
        const auto source = open_as(DataFormat::tokens, {path}, 65536);
        const int descriptor = open(path.c_str(), O_RDWR);
        REQUIRE((renamed ? rename(path.c_str(), (dir / "c").c_str()) : unlink(path.c_str())) == 0);
        std::vector<std::int32_t> part(10);
        source->read(90000, part);  // still whole
        REQUIRE(ftruncate(descriptor, 100000) == 0);
        source->read(100, part);
        for (const std::int64_t gone : {std::int64_t{50010}, std::int64_t{90000}}) {  // of the last page that is left, and of one that is not
            try {
                source->read(gone, part);
                FAIL("lost tokens were read");
            } catch (const Error& e) {
                CHECK(e.exit() == Exit::io_failed);
                check_names(e.what(), {path, "100000", "200000", std::to_string(2 * gone)});
            }
        }
        close(descriptor);
    }
}

TEST_CASE("without descriptors to spare a lost page is an error all the same") {
    const Folder dir;
    rlimit all{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &all) == 0);
    rlimit few = all;
    few.rlim_cur = 6;  // half of them are the standard streams
    const auto path = dir.write("a", array_of<std::uint16_t>(Ids(100000, 3)));
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const auto source = open_as(DataFormat::tokens, {path}, 65536);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &all) == 0);
    REQUIRE(rename(path.c_str(), (dir / "c").c_str()) == 0);
    std::filesystem::resize_file(dir / "c", 100000);
    std::vector<std::int32_t> part(10);
    source->read(100, part);
    for (int again = 0; again < 2; ++again) {
        try {
            source->read(90000, part);
            FAIL("lost tokens were read");
        } catch (const Error& e) {
            CHECK(e.exit() == Exit::io_failed);
            check_names(e.what(), {path, "can no longer be read", "180000"});
        }
    }
}

TEST_CASE("marks tell files apart by size, beginning and end") {
    const Folder dir;
    const auto mark = [&](const std::string& bytes) {
        const auto marks = open_as(DataFormat::text, {dir.write("a", bytes)})->marks();
        REQUIRE(marks.size() == 1);
        CHECK(marks[0].size == static_cast<std::int64_t>(bytes.size()));
        return marks[0].ends;
    };
    for (const std::size_t size : {1u, 1000u, 65536u, 200000u}) {
        const std::string text(size, 'a');
        CHECK(mark(text) == mark(text));
        for (const std::size_t at : {std::size_t{0}, size / 8, size - 1}) {
            std::string other = text;
            other[at] = 'b';
            CHECK(mark(other) != mark(text));
        }
    }
}

TEST_CASE("a named pipe is refused, not waited for") {
    const Folder dir;
    REQUIRE(std::system(("mkfifo " + (dir / "pipe")).c_str()) == 0);
    check_names(refusal(DataFormat::text, {dir / "pipe"}), {"regular file"});
}

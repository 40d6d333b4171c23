#include "data/formats.hpp"

#include "data/flat_source.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace quadrille {

namespace {

constexpr std::int32_t llmc_uint16 = 20240520, llmc_uint32 = 20240801, llmc_evaluation = 20240522;
constexpr std::int64_t llmc_header = 256 * 4;
constexpr std::int64_t largest_scan = std::int64_t{1} << 24;  // tokens: some 50 ms, so that starting stays quick

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

std::span<const std::byte> head(const MappedFile& file, std::int64_t most) {
    return file.bytes().first(static_cast<std::size_t>(std::min(file.size(), most)));
}

bool looks_like_text(std::span<const std::byte> bytes) {
    return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](std::byte b) {
        const auto c = std::to_integer<int>(b);
        return (c >= 32 && c < 127) || c == '\n' || c == '\t' || c == '\r';
    });
}

// What an llm.c header's first word says the file is, in words; empty if it is no magic of theirs.
std::string llmc_kind(std::int32_t magic) {
    if (magic == llmc_uint16) return "an llm.c uint16 shard";
    if (magic == llmc_uint32) return "an llm.c uint32 shard";
    if (magic == llmc_evaluation) return "an llm.c evaluation file";
    return "";
}

std::int32_t byte_swapped(std::int32_t x) {
    return static_cast<std::int32_t>(__builtin_bswap32(static_cast<std::uint32_t>(x)));
}

// What is wrong with a text file; empty if nothing is.
std::string text_problem(const MappedFile& file) {
    const auto start = head(file, 8 << 10);
    if (const auto other = known_format(start))
        return fmt::format("{}: data.format text is expected, but the file begins like {}", file.path(), *other);
    const auto zero = std::find(start.begin(), start.end(), std::byte{0});
    if (zero != start.end())
        return fmt::format("{}: data.format text is expected, but the byte at offset {} is 0: a binary file", file.path(),
                           zero - start.begin());
    return "";
}

std::string raw_problem(const MappedFile& file, int width) {
    if (file.size() == 0) return fmt::format("{}: holds no tokens: 0 bytes", file.path());
    if (file.size() % width == 0) return "";
    return fmt::format("{}: {} bytes are not a whole number of data.dtype uint{} tokens of {} bytes", file.path(), file.size(),
                       8 * width, width);
}

void warn_of_raw_start(const MappedFile& file, Opening& opening) {
    const auto start = head(file, 4 << 10);
    const auto other = known_format(start);
    if (other || looks_like_text(start))
        opening.remarks.warnings.push_back(fmt::format("{}: read as raw tokens (data.format tokens), but the file begins like {}",
                                                       file.path(), other ? *other : "text"));
}

// Reads the header into `out`; returns what is wrong, or nothing.
std::string llmc_problem(const MappedFile& file, FlatFile& out) {
    const std::string& path = file.path();
    const std::string allowed = fmt::format("{} (uint16) or {} (uint32)", llmc_uint16, llmc_uint32);
    if (file.size() < 4) return fmt::format("{}: {} bytes, but an llm.c header has {}", path, file.size(), llmc_header);
    const auto magic = load<std::int32_t>(file.bytes().data());
    if (!llmc_kind(byte_swapped(magic)).empty())
        return fmt::format("{}: magic {} is the byte-swapped {}: a big-endian file; {} is expected", path, magic,
                           byte_swapped(magic), allowed);
    if (magic == llmc_evaluation)
        return fmt::format("{}: magic {} is an llm.c evaluation file; a shard of tokens has {}", path, magic, allowed);
    if (magic != llmc_uint16 && magic != llmc_uint32) {
        const auto other = known_format(file.bytes());
        return fmt::format("{}: magic {}, but an llm.c shard has {}{}", path, magic, allowed,
                           other ? "; the file begins like " + *other : "");
    }
    if (file.size() < llmc_header) return fmt::format("{}: {} bytes, but an llm.c header has {}", path, file.size(), llmc_header);
    const std::int32_t version = load<std::int32_t>(file.bytes().data() + 4), expected = magic == llmc_uint16 ? 1 : 7;
    if (version != expected) return fmt::format("{}: version {}, but magic {} has version {}", path, version, magic, expected);
    out.type = magic == llmc_uint16 ? StoredType::u16 : StoredType::u32;
    out.header_bytes = llmc_header;
    out.count = load<std::int32_t>(file.bytes().data() + 8);
    if (out.count <= 0) return fmt::format("{}: the header counts {} tokens; 1 or more are needed", path, out.count);
    const std::int64_t size = llmc_header + out.count * bytes_of(out.type);
    if (file.size() != size)
        return fmt::format("{}: the header counts {} tokens, which makes {} bytes, but the file has {}", path, out.count, size,
                           file.size());
    return "";
}

// Opens every path and lets `examine` (FlatFile& → problem or "") fill in type, header and count.
template <class Examine>
std::vector<FlatFile> open_flat(const std::vector<std::string>& paths, Opening& opening, Examine examine) {
    std::vector<FlatFile> files;
    for (const std::string& path : paths) {
        std::string problem;
        FlatFile flat{.file = MappedFile(path, problem)};
        const PageGuard guard = flat.file.guard();
        if (problem.empty()) problem = examine(flat);
        if (const std::string gone = flat.file.problem_before(flat.file.size()); problem.empty()) problem = gone;
        if (problem.empty()) files.push_back(std::move(flat));
        else opening.problems.push_back(std::move(problem));
    }
    return files;
}

bool any_of_type(const std::vector<FlatFile>& files, StoredType type) {
    return std::any_of(files.begin(), files.end(), [type](const FlatFile& f) { return f.type == type; });
}

void scan_ids(const TokenSource& source) {
    if (source.ids_always_valid() || source.size() > largest_scan) return;
    std::vector<std::int32_t> buffer(1 << 16);
    for (std::int64_t at = 0; at < source.size(); at += static_cast<std::int64_t>(buffer.size())) {
        const auto n = std::min(source.size() - at, static_cast<std::int64_t>(buffer.size()));
        source.read(at, std::span(buffer).first(static_cast<std::size_t>(n)), Exit::refused);
    }
}

// All problems in one message, a line each; after twenty, how many more.
std::string joined(const std::vector<std::string>& problems) {
    constexpr std::size_t most = 20;
    std::string text;
    for (std::size_t i = 0; i < std::min(problems.size(), most); ++i) text += (i ? "\n" : "") + problems[i];
    if (problems.size() > most) text += fmt::format("\nand {} more files", problems.size() - most);
    return text;
}

}  // namespace

std::optional<std::string> known_format(std::span<const std::byte> bytes) {
    using namespace std::string_view_literals;
    if (bytes.size() >= 4) {
        const auto word = load<std::int32_t>(bytes.data());
        if (const std::string kind = llmc_kind(word); !kind.empty()) return fmt::format("{} (magic {})", kind, word);
        if (const std::string kind = llmc_kind(byte_swapped(word)); !kind.empty())
            return fmt::format("{}, but big-endian (magic {})", kind, byte_swapped(word));
    }
    constexpr std::pair<std::string_view, std::string_view> magics[] = {
        {"MMIDIDX\0\0"sv, "a Megatron index"}, {"TNTIDX\0\0"sv, "an index of the old fairseq kind"}, {"\x93NUMPY"sv, "a NumPy array"},
        {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"}, {"\x1f\x8b"sv, "a gzip archive"}, {"PK\x03\x04"sv, "a zip archive"},
        {"\x28\xb5\x2f\xfd"sv, "a zstd archive"}, {"PAR1"sv, "a Parquet file"}, {"ARROW1"sv, "an Arrow file"},
    };
    for (const auto& [magic, name] : magics)
        if (starts_with(bytes, magic)) return std::string(name);
    return std::nullopt;
}

void remark_on_width(bool two_bytes, bool four_bytes, Opening& opening) {
    const std::int64_t vocab = opening.vocab_size;
    if (two_bytes && vocab > 65536)
        opening.remarks.notes.push_back(fmt::format("note: tokens of two bytes reach 65536 of the {} ids of the vocabulary", vocab));
    if (four_bytes && vocab <= 65536)
        opening.remarks.notes.push_back(
            fmt::format("note: tokens of four or more bytes; two would do for a vocabulary of {}", vocab));
}

std::shared_ptr<const TokenSource> open_text(const std::vector<std::string>& paths, Opening& opening) {
    auto files = open_flat(paths, opening, [](FlatFile& flat) {
        flat.type = StoredType::u8;
        flat.count = flat.file.size();
        return text_problem(flat.file);
    });
    return std::make_shared<FlatSource>(std::move(files), opening.vocab_size, true);
}

std::shared_ptr<const TokenSource> open_tokens(const std::vector<std::string>& paths, TokenType type, Opening& opening) {
    const StoredType stored = type == TokenType::uint16 ? StoredType::u16 : StoredType::u32;
    auto files = open_flat(paths, opening, [&](FlatFile& flat) {
        flat.type = stored;
        flat.count = flat.file.size() / bytes_of(stored);
        warn_of_raw_start(flat.file, opening);
        return raw_problem(flat.file, bytes_of(stored));
    });
    remark_on_width(stored == StoredType::u16, stored == StoredType::u32, opening);
    return std::make_shared<FlatSource>(std::move(files), opening.vocab_size, false);
}

std::shared_ptr<const TokenSource> open_llmc(const std::vector<std::string>& paths, Opening& opening) {
    auto files = open_flat(paths, opening, [](FlatFile& flat) { return llmc_problem(flat.file, flat); });
    remark_on_width(any_of_type(files, StoredType::u16), any_of_type(files, StoredType::u32), opening);
    return std::make_shared<FlatSource>(std::move(files), opening.vocab_size, false);
}

std::shared_ptr<const TokenSource> open_source(const DataConfig& data, const std::vector<std::string>& paths,
                                               std::int64_t vocab_size, Remarks& remarks) {
    std::vector<std::string> problems;
    Opening opening{.vocab_size = vocab_size, .remarks = remarks, .problems = problems};
    std::shared_ptr<const TokenSource> source;
    switch (data.format) {
        case DataFormat::text: source = open_text(paths, opening); break;
        case DataFormat::tokens: source = open_tokens(paths, data.dtype, opening); break;
        case DataFormat::llmc: source = open_llmc(paths, opening); break;
        case DataFormat::megatron: source = open_megatron(paths, opening); break;
        case DataFormat::synthetic: break;
    }
    require(source != nullptr, "a synthetic source has no files");
    if (!problems.empty()) throw Error(Exit::refused, joined(problems));
    scan_ids(*source);
    return source;
}

}  // namespace quadrille

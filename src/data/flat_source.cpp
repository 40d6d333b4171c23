#include "data/flat_source.hpp"

#include <algorithm>

namespace quadrille {

int bytes_of(StoredType type) {
    switch (type) {
        case StoredType::u8: case StoredType::i8: return 1;
        case StoredType::i16: case StoredType::u16: return 2;
        case StoredType::i32: case StoredType::u32: return 4;
        case StoredType::i64: return 8;
    }
    return 0;
}

namespace {

template <class T>
std::int64_t convert_as(const std::byte* from, std::int64_t vocab_size, std::span<std::int32_t> out, std::int64_t& bad_value) {
    // One branch-free pass for the usual case; the culprit is looked for only if there is one.
    bool bad = false;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto value = static_cast<std::int64_t>(load<T>(from + i * sizeof(T)));
        bad |= value < 0 || value >= vocab_size;
        out[i] = static_cast<std::int32_t>(value);
    }
    for (std::size_t i = 0; bad && i < out.size(); ++i) {
        bad_value = static_cast<std::int64_t>(load<T>(from + i * sizeof(T)));
        if (bad_value < 0 || bad_value >= vocab_size) return static_cast<std::int64_t>(i);
    }
    return static_cast<std::int64_t>(out.size());
}

}  // namespace

std::int64_t convert(StoredType type, const std::byte* from, std::int64_t vocab_size, std::span<std::int32_t> out,
                     std::int64_t& bad_value) {
    switch (type) {
        case StoredType::u8: return convert_as<std::uint8_t>(from, vocab_size, out, bad_value);
        case StoredType::i8: return convert_as<std::int8_t>(from, vocab_size, out, bad_value);
        case StoredType::i16: return convert_as<std::int16_t>(from, vocab_size, out, bad_value);
        case StoredType::i32: return convert_as<std::int32_t>(from, vocab_size, out, bad_value);
        case StoredType::i64: return convert_as<std::int64_t>(from, vocab_size, out, bad_value);
        case StoredType::u16: return convert_as<std::uint16_t>(from, vocab_size, out, bad_value);
        case StoredType::u32: return convert_as<std::uint32_t>(from, vocab_size, out, bad_value);
    }
    return 0;
}

void read_stored(const MappedFile& file, std::int64_t byte_offset, StoredType type, std::int64_t vocab_size,
                 std::span<std::int32_t> out, Exit on_bad) {
    const std::int64_t width = bytes_of(type), end = byte_offset + static_cast<std::int64_t>(out.size()) * width;
    std::int64_t bad_value = 0;
    require(byte_offset >= 0 && end <= file.size(), "tokens outside of the file");
    const PageGuard guard = file.guard();
    const std::int64_t bad = convert(type, file.bytes().data() + byte_offset, vocab_size, out, bad_value);
    if (const std::string problem = file.problem_before(end); !problem.empty())
        throw Error(on_bad, fmt::format("{}; the token at byte {} is gone", problem, byte_offset));
    if (bad < static_cast<std::int64_t>(out.size()))
        throw Error(on_bad, fmt::format("{}: token id {} at byte {}, but model.vocab_size is {}: ids are 0 to {}", file.path(),
                                        bad_value, byte_offset + bad * width, vocab_size, vocab_size - 1));
}

bool always_valid(StoredType type, std::int64_t vocab_size) {
    return (type == StoredType::u8 && vocab_size >= 256) || (type == StoredType::u16 && vocab_size >= 65536);
}

FlatSource::FlatSource(std::vector<FlatFile> files, std::int64_t vocab_size, bool files_are_documents)
    : files_(std::move(files)), vocab_size_(vocab_size), files_are_documents_(files_are_documents) {
    first_.push_back(0);
    for (const FlatFile& f : files_) first_.push_back(first_.back() + f.count);
}

// The file that holds the token; empty files hold none.
std::size_t FlatSource::file_of(std::int64_t position) const {
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), position) - first_.begin()) - 1;
}

void FlatSource::read(std::int64_t position, std::span<std::int32_t> out, Exit on_bad) const {
    require(position >= 0 && position + static_cast<std::int64_t>(out.size()) <= size(), "tokens outside of the corpus");
    std::size_t done = 0;
    for (std::size_t f = out.empty() ? 0 : file_of(position); done < out.size(); ++f) {
        const FlatFile& flat = files_[f];
        const std::int64_t at = position + static_cast<std::int64_t>(done), skip = at - first_[f];
        const std::int64_t n = std::min(flat.count - skip, static_cast<std::int64_t>(out.size() - done));
        if (n == 0) continue;
        read_stored(flat.file, flat.header_bytes + skip * bytes_of(flat.type), flat.type, vocab_size_,
                    out.subspan(done, static_cast<std::size_t>(n)), on_bad);
        done += static_cast<std::size_t>(n);
    }
}

void FlatSource::document_begins(std::int64_t position, std::span<std::uint8_t> begins) const {
    std::fill(begins.begin(), begins.end(), std::uint8_t{0});
    if (!files_are_documents_) return;
    const std::int64_t end = position + static_cast<std::int64_t>(begins.size());
    for (auto f = std::lower_bound(first_.begin(), first_.end(), position); f != first_.end() && *f < end; ++f)
        begins[static_cast<std::size_t>(*f - position)] = 1;
}

bool FlatSource::ids_always_valid() const {
    return std::all_of(files_.begin(), files_.end(), [&](const FlatFile& f) { return always_valid(f.type, vocab_size_); });
}

std::vector<FileMark> FlatSource::marks() const {
    std::vector<FileMark> marks;
    for (const FlatFile& f : files_) marks.push_back(f.file.mark());
    return marks;
}

std::int64_t FlatSource::bytes() const {
    std::int64_t sum = 0;
    for (const FlatFile& f : files_) sum += f.count * bytes_of(f.type);
    return sum;
}

}  // namespace quadrille

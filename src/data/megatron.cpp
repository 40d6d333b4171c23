#include "data/megatron.hpp"

#include "data/formats.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace quadrille {

namespace {

constexpr std::string_view magic{"MMIDIDX\0\0", 9};
constexpr std::int64_t header_bytes = 9 + 8 + 1 + 8 + 8;
constexpr std::int64_t stride = 64;  // sequences per entry of the position table

std::string prefix_of(std::string path) {
    if (path.ends_with(".bin") || path.ends_with(".idx")) path.resize(path.size() - 4);
    return path;
}

std::optional<StoredType> integer_type(int code) {
    switch (code) {
        case 1: return StoredType::u8;
        case 2: return StoredType::i8;
        case 3: return StoredType::i16;
        case 4: return StoredType::i32;
        case 5: return StoredType::i64;
        case 8: return StoredType::u16;
        default: return std::nullopt;
    }
}

}  // namespace

MegatronFile::MegatronFile(const std::string& path, std::string& problem)
    : prefix_(prefix_of(path)), bin_(prefix_ + ".bin", problem), index_(prefix_ + ".idx", problem) {
    if (!problem.empty()) problem += " (data.format megatron reads PREFIX.bin and PREFIX.idx)";
    const PageGuard guard = index_.guard();
    if (problem.empty()) problem = read_header();
    if (problem.empty()) problem = check_sequences();
    if (problem.empty()) problem = check_documents();
    if (problem.empty()) problem = check_modes();
    if (const std::string gone = index_.problem_before(index_.size()); !gone.empty()) problem = gone;
}

std::string MegatronFile::read_header() {
    const auto bytes = index_.bytes();
    const std::string& path = index_.path();
    if (index_.size() < header_bytes)
        return fmt::format("{}: truncated: {} bytes, but a Megatron index begins with {}", path, index_.size(), header_bytes);
    if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) {
        const auto other = known_format(bytes);
        return fmt::format("{}: magic: \"MMIDIDX\" and two zero bytes are expected at offset 0, but the file begins {}", path,
                           other ? "like " + *other : "otherwise");
    }
    const auto version = load<std::uint64_t>(bytes.data() + 9);
    if (version != 1) return fmt::format("{}: version: {} at offset 9, but 1 is expected", path, version);
    const int code = std::to_integer<int>(bytes[17]);
    const auto type = integer_type(code);
    if (!type)
        return fmt::format("{}: type code: {} at offset 17{}, but an integer type is expected: 1 (uint8), 2 (int8), 3 (int16), "
                           "4 (int32), 5 (int64) or 8 (uint16)", path, code, code == 6 || code == 7 ? " is a floating-point type" : "");
    type_ = *type;
    const auto sequences = load<std::uint64_t>(bytes.data() + 18), ends = load<std::uint64_t>(bytes.data() + 26);
    const auto room = static_cast<std::uint64_t>(index_.size() - header_bytes);
    if (sequences > room / 12 || ends > (room - 12 * sequences) / 8)
        return fmt::format("{}: truncated: sequence count {} and document count {} need 12 and 8 bytes each, but {} bytes follow the "
                           "header", path, sequences, ends, room);
    sequences_ = static_cast<std::int64_t>(sequences);
    document_ends_ = static_cast<std::int64_t>(ends);
    lengths_ = header_bytes;
    offsets_ = lengths_ + 4 * sequences_;
    documents_ = offsets_ + 8 * sequences_;
    modes_ = documents_ + 8 * document_ends_;
    const std::int64_t rest = index_.size() - modes_;
    if (rest != 0 && rest != sequences_)
        return fmt::format("{}: size: {} bytes, but {} sequences and {} document ends make {} (or {} with an int8 per sequence)",
                           path, index_.size(), sequences_, document_ends_, modes_, modes_ + sequences_);
    return "";
}

std::string MegatronFile::check_sequences() {
    const std::string& path = index_.path();
    const std::int64_t width = bytes_of(type_);
    for (std::int64_t i = 0; i < sequences_; ++i) {
        const std::int64_t n = length(i), at = offset(i);
        if (n < 0) return fmt::format("{}: sequence lengths: sequence {} has {} tokens", path, i, n);
        if (at < 0 || at % width != 0)
            return fmt::format("{}: byte offsets: sequence {} is at {}, but 0 or a positive multiple of {} is expected", path, i, at,
                               width);
        if (n > 0 && (at > bin_.size() || n * width > bin_.size() - at))
            return fmt::format("{}: byte offsets: sequence {} has {} bytes at {}, beyond the {} bytes of {}", path, i, n * width, at,
                               bin_.size(), bin_.path());
        if (i % stride == 0) every_.push_back(size_);
        size_ += n;
    }
    if (size_ == 0) return fmt::format("{}: holds no tokens: sequence count {}, every length 0", path, sequences_);
    return "";
}

std::string MegatronFile::check_documents() const {
    const std::string& path = index_.path();
    if (document_ends_ < 1) return fmt::format("{}: document count: 0, but 1 or more is expected", path);
    if (document(0) != 0) return fmt::format("{}: document ends: the first is {}, but 0 is expected", path, document(0));
    for (std::int64_t i = 1; i < document_ends_; ++i)
        if (document(i) < document(i - 1))
            return fmt::format("{}: document ends: number {} is {}, less than the {} before it", path, i, document(i), document(i - 1));
    if (document(document_ends_ - 1) != sequences_)
        return fmt::format("{}: document ends: the last is {}, but the sequence count {} is expected", path,
                           document(document_ends_ - 1), sequences_);
    return "";
}

std::string MegatronFile::check_modes() const {
    const auto modes = index_.bytes().subspan(static_cast<std::size_t>(modes_));
    const auto other = std::find_if(modes.begin(), modes.end(), [](std::byte mode) { return mode != std::byte{0}; });
    if (other == modes.end()) return "";
    return fmt::format("{}: sequence modes: sequence {} has mode {}, but only text (0) can be trained on", index_.path(),
                       other - modes.begin(), static_cast<int>(static_cast<std::int8_t>(*other)));
}

// Position of a sequence's first token; of the end for sequence == sequences_.
std::int64_t MegatronFile::position_of(std::int64_t sequence) const {
    if (sequence == sequences_) return size_;
    std::int64_t i = sequence / stride * stride, position = every_[static_cast<std::size_t>(sequence / stride)];
    for (; i < sequence; ++i) position += length(i);
    return position;
}

// The first sequence whose first token is at or after `position`; sequences_ if there is none.
std::int64_t MegatronFile::first_sequence_at(std::int64_t position) const {
    const auto block = std::lower_bound(every_.begin(), every_.end(), position) - every_.begin();
    if (block == 0) return 0;
    std::int64_t i = (block - 1) * stride, at = every_[static_cast<std::size_t>(block - 1)];
    for (; i < sequences_ && at < position; ++i) at += length(i);
    return i;
}

void MegatronFile::require_index(Exit on_bad) const {
    if (const std::string gone = index_.problem_before(index_.size()); !gone.empty()) throw Error(on_bad, gone);
}

void MegatronFile::read(std::int64_t position, std::int64_t vocab_size, std::span<std::int32_t> out, Exit on_bad) const {
    const PageGuard guard = index_.guard();
    // The last sequence that begins at or before the position holds it: of several there, all but the last are empty.
    std::int64_t i = first_sequence_at(position + 1) - 1;
    std::int64_t skip = position - position_of(i);
    require_index(on_bad);
    for (; !out.empty(); ++i, skip = 0) {
        const auto n = std::min(length(i) - skip, static_cast<std::int64_t>(out.size())), at = offset(i);
        if (index_.lost()) require_index(on_bad);
        if (n == 0) continue;
        read_stored(bin_, at + skip * bytes_of(type_), type_, vocab_size, out.first(static_cast<std::size_t>(n)), on_bad);
        out = out.subspan(static_cast<std::size_t>(n));
    }
}

namespace {
// The first i in [0, n) with value(i) ≥ wanted, value never falling.
template <class Value>
std::int64_t first_at_least(std::int64_t n, std::int64_t wanted, Value value) {
    std::int64_t low = 0, high = n;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (value(middle) < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}
}  // namespace

void MegatronFile::mark_documents(std::int64_t position, std::span<std::uint8_t> begins) const {
    const PageGuard guard = index_.guard();
    const std::int64_t end = position + static_cast<std::int64_t>(begins.size());
    const std::int64_t sequence = first_sequence_at(position);
    require_index(Exit::io_failed);
    for (auto d = first_at_least(document_ends_, sequence, [this](std::int64_t i) { return document(i); }); d < document_ends_; ++d) {
        const std::int64_t at = position_of(document(d));
        if (index_.lost()) require_index(Exit::io_failed);
        if (at >= end) return;
        begins[static_cast<std::size_t>(at - position)] = 1;
    }
}

std::int64_t MegatronFile::next_document(std::int64_t position) const {
    const PageGuard guard = index_.guard();
    const std::int64_t sequence = first_sequence_at(position);
    const auto d = first_at_least(document_ends_, sequence, [this](std::int64_t i) { return document(i); });
    const std::int64_t found = d == document_ends_ ? size_ : position_of(document(d));
    require_index(Exit::io_failed);
    return found;
}

MegatronSource::MegatronSource(std::vector<MegatronFile> files, std::int64_t vocab_size)
    : files_(std::move(files)), vocab_size_(vocab_size) {
    first_.push_back(0);
    for (const MegatronFile& f : files_) first_.push_back(first_.back() + f.size());
}

std::size_t MegatronSource::file_of(std::int64_t position) const {
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), position) - first_.begin()) - 1;
}

void MegatronSource::read(std::int64_t position, std::span<std::int32_t> out, Exit on_bad) const {
    require(position >= 0 && position + static_cast<std::int64_t>(out.size()) <= size(), "tokens outside of the corpus");
    while (!out.empty()) {
        const std::size_t f = file_of(position);
        const auto n = std::min(first_[f + 1] - position, static_cast<std::int64_t>(out.size()));
        files_[f].read(position - first_[f], vocab_size_, out.first(static_cast<std::size_t>(n)), on_bad);
        out = out.subspan(static_cast<std::size_t>(n));
        position += n;
    }
}

void MegatronSource::document_begins(std::int64_t position, std::span<std::uint8_t> begins) const {
    std::fill(begins.begin(), begins.end(), std::uint8_t{0});
    while (!begins.empty() && position < size()) {
        const std::size_t f = file_of(position);
        const auto n = std::min(first_[f + 1] - position, static_cast<std::int64_t>(begins.size()));
        files_[f].mark_documents(position - first_[f], begins.first(static_cast<std::size_t>(n)));
        begins = begins.subspan(static_cast<std::size_t>(n));
        position += n;
    }
}

std::int64_t MegatronSource::next_cut(std::int64_t position) const {
    if (position >= size()) return size();
    const std::size_t f = file_of(position);
    return first_[f] + files_[f].next_document(position - first_[f]);
}

bool MegatronSource::ids_always_valid() const {
    return std::all_of(files_.begin(), files_.end(), [&](const MegatronFile& f) { return always_valid(f.type(), vocab_size_); });
}

std::vector<FileMark> MegatronSource::marks() const {
    std::vector<FileMark> marks;
    for (const MegatronFile& f : files_)
        for (FileMark& m : f.marks()) marks.push_back(std::move(m));
    return marks;
}

std::int64_t MegatronSource::bytes() const {
    std::int64_t sum = 0;
    for (const MegatronFile& f : files_) sum += f.size() * bytes_of(f.type());
    return sum;
}

std::shared_ptr<const TokenSource> open_megatron(const std::vector<std::string>& paths, Opening& opening) {
    std::vector<MegatronFile> files;
    std::set<std::string> seen;  // a glob names both files of a pair
    bool two_bytes = false, more_bytes = false;
    for (const std::string& path : paths) {
        if (!seen.insert(prefix_of(path)).second) continue;
        std::string problem;
        MegatronFile file(path, problem);
        if (!problem.empty()) {
            opening.problems.push_back(std::move(problem));
            continue;
        }
        if (file.unused_bytes() > 0)
            opening.remarks.warnings.push_back(
                fmt::format("{}.bin: {} bytes belong to no sequence of the index", file.prefix(), file.unused_bytes()));
        two_bytes |= file.type() == StoredType::u16;
        more_bytes |= bytes_of(file.type()) > 2;
        files.push_back(std::move(file));
    }
    remark_on_width(two_bytes, more_bytes, opening);
    return std::make_shared<MegatronSource>(std::move(files), opening.vocab_size);
}

}  // namespace quadrille

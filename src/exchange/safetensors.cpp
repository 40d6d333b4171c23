#include "exchange/safetensors.hpp"

#include "base/error.hpp"
#include "exchange/json.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace quadrille {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t length_bytes = 8, most_header = 100'000'000;  // bytes; the second is the reference implementation's limit
constexpr std::int64_t strip = std::int64_t{1} << 20;                // elements that are converted at once

static_assert(std::endian::native == std::endian::little);

[[noreturn]] void damaged(const fs::path& file, const std::string& why) {
    throw Damaged(Exit::io_failed, fmt::format("{}: {}", file.string(), why));
}

// Bytes of one element; 0 for a dtype that the format does not name in whole bytes.
std::int64_t width_of(const std::string& dtype) {
    static const std::map<std::string, std::int64_t> widths = {
        {"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
        {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4}, {"I64", 8}, {"U64", 8}, {"F64", 8}, {"C64", 8}};
    const auto at = widths.find(dtype);
    return at == widths.end() ? 0 : at->second;
}

// A list of counts; throws where it is anything else.
std::vector<std::int64_t> counts(const json& list, const std::string& what, const fs::path& file) {
    std::vector<std::int64_t> out;
    if (!list.is_array()) damaged(file, what + " is no list");
    for (const json& n : list) {
        if (!n.is_number_unsigned() || n.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            damaged(file, fmt::format("{} has {} in it, allowed: counts", what, n.dump()));
        out.push_back(static_cast<std::int64_t>(n.get<std::uint64_t>()));
    }
    return out;
}

const json& member(const json& object, const char* key, const std::string& what, const fs::path& file) {
    const auto at = object.find(key);
    if (at == object.end()) damaged(file, fmt::format("{} has no {}", what, key));
    return *at;
}

// Of the header's entry; offset is still counted from the end of the header.
SafeTensor tensor_of(const std::string& name, const json& entry, const fs::path& file) {
    const std::string what = fmt::format("tensor '{}'", name);
    if (!entry.is_object()) damaged(file, what + " is no object");
    SafeTensor t;
    t.name = name;
    const json& dtype = member(entry, "dtype", what, file);
    if (!dtype.is_string()) damaged(file, fmt::format("{} has dtype {}, allowed: a word", what, dtype.dump()));
    t.dtype = dtype.get<std::string>();
    t.shape = counts(member(entry, "shape", what, file), what + ": shape", file);
    const std::vector<std::int64_t> at = counts(member(entry, "data_offsets", what, file), what + ": data_offsets", file);
    if (at.size() != 2 || at[0] > at[1])
        damaged(file, fmt::format("{} has data_offsets {}, allowed: begin and end", what, entry["data_offsets"].dump()));
    t.offset = at[0];
    t.bytes = at[1] - at[0];
    std::int64_t bytes = width_of(t.dtype);
    if (bytes == 0) damaged(file, fmt::format("{} has dtype {}, which this program does not know", what, t.dtype));
    bool fits = true;
    for (const std::int64_t n : t.shape) fits = !__builtin_mul_overflow(bytes, n, &bytes) && fits;
    if (!fits || bytes != t.bytes)
        damaged(file, fmt::format("{} has {} bytes, but its shape {} of {} takes {}", what, t.bytes, entry["shape"].dump(), t.dtype,
                                  fits ? std::to_string(bytes) : "more than can be counted"));
    return t;
}

// In the order of their bytes, which they share out without gap or overlap.
void check_places(std::vector<SafeTensor>& tensors, std::int64_t header_end, std::int64_t size, const fs::path& file) {
    std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
        return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    std::int64_t end = 0;
    const std::int64_t room = size - header_end;
    for (SafeTensor& t : tensors) {
        if (t.offset != end)
            damaged(file, fmt::format("tensor '{}' begins at byte {} of the data, and what is before it ends at {}: they overlap, or leave a gap",
                                      t.name, t.offset, end));
        if (t.bytes > room - t.offset)
            damaged(file, fmt::format("tensor '{}' takes bytes {} to {}, but there are {}: the file is truncated, or damaged", t.name, t.offset,
                                      static_cast<std::uint64_t>(t.offset) + static_cast<std::uint64_t>(t.bytes), room));
        end = t.offset + t.bytes;
        t.offset += header_end;
    }
    if (end != room) damaged(file, fmt::format("has {} bytes of data, but its tensors take {}", room, end));
}

template <class T>
void widen(const std::byte* from, std::span<float> into) {
    for (std::size_t i = 0; i < into.size(); ++i) {
        T x;
        std::memcpy(&x, from + i * sizeof(T), sizeof(T));
        into[i] = static_cast<float>(x);
    }
}

// Returns the first number that is none any more (which T would make an infinity of); 0 where there is none.
template <class T>
float narrow(std::span<const float> from, std::byte* into) {
    float lost = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
        const T x(from[i]);
        std::memcpy(into + i * sizeof(T), &x, sizeof(T));
        if (lost == 0 && std::isfinite(from[i]) && !std::isfinite(static_cast<float>(x))) lost = from[i];
    }
    return lost;
}

}  // namespace

std::int64_t SafeTensor::elements() const {
    std::int64_t n = 1;
    for (const std::int64_t d : shape) n *= d;
    return n;
}

DType dtype_of(const SafeTensor& t, const fs::path& file) {
    for (const DType d : {DType::f32, DType::f16, DType::bf16})
        if (t.dtype == safetensors_name(d)) return d;
    throw Error(Exit::refused, fmt::format("{}: tensor '{}' is {}, allowed: F32, F16 and BF16", file.string(), t.name, t.dtype));
}

std::string safetensors_name(DType t) {
    switch (t) {
        case DType::f32: return "F32";
        case DType::f16: return "F16";
        case DType::bf16: return "BF16";
        default: break;
    }
    require(false, "safetensors: values are exchanged as f32, f16 and bf16");
    return "";
}

SafetensorsFile::SafetensorsFile(const fs::path& file) : path_(file), file_(file, PlainFile::Open::read) {
    const std::int64_t size = file_.size();
    std::uint64_t length = 0;
    if (size < length_bytes) damaged(file, fmt::format("has {} bytes, and the length of its header takes {}", size, length_bytes));
    file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > static_cast<std::uint64_t>(most_header))
        damaged(file, fmt::format("says its header has {} bytes, allowed: up to {}", length, most_header));
    const std::int64_t end = length_bytes + static_cast<std::int64_t>(length);
    if (end > size) damaged(file, fmt::format("says its header ends at byte {}, but it has {}: truncated, or no safetensors file", end, size));
    std::vector<std::byte> text(length);
    file_.read(length_bytes, text);
    const json header = parse_json(text, file);
    if (!header.is_object()) damaged(file, "has a header that is no object");
    for (const auto& [name, entry] : header.items())
        if (name != "__metadata__") tensors_.push_back(tensor_of(name, entry, file));
    check_places(tensors_, end, size, file);
}

void SafetensorsFile::read(const SafeTensor& t, std::int64_t first, std::span<float> into) const {
    const DType dtype = dtype_of(t, path_);
    const std::int64_t width = bytes_of(dtype);
    if (dtype == DType::f32) {
        file_.read(t.offset + first * width, std::as_writable_bytes(into));
        return;
    }
    std::vector<std::byte> part(static_cast<std::size_t>(std::min(strip, std::ssize(into)) * width));
    while (!into.empty()) {
        const std::span<float> now = into.first(static_cast<std::size_t>(std::min(strip, std::ssize(into))));
        const std::span<std::byte> bytes = std::span(part).first(now.size() * static_cast<std::size_t>(width));
        file_.read(t.offset + first * width, bytes);
        if (dtype == DType::f16) widen<f16>(bytes.data(), now);
        else widen<bf16>(bytes.data(), now);
        first += std::ssize(now);
        into = into.subspan(now.size());
    }
}

SafetensorsWriter::SafetensorsWriter(const fs::path& file, std::vector<SafeTensor> tensors, DType dtype)
    : file_(file, PlainFile::Open::make), tensors_(std::move(tensors)), dtype_(dtype) {
    json header = {{"__metadata__", {{"format", "pt"}}}};  // without it the reference library does not load the file
    std::int64_t at = 0;
    for (SafeTensor& t : tensors_) {
        t.dtype = safetensors_name(dtype);
        t.offset = at;
        t.bytes = t.elements() * bytes_of(dtype);
        at += t.bytes;
        header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {t.offset, at}}};
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');  // so that values are aligned
    const std::uint64_t length = text.size();
    file_.reserve(length_bytes + std::ssize(text) + at);
    file_.write(0, std::as_bytes(std::span(&length, 1)));
    file_.write(length_bytes, std::as_bytes(std::span(text)));
    for (SafeTensor& t : tensors_) t.offset += length_bytes + std::ssize(text);
}

void SafetensorsWriter::write_next(std::span<const float> values) {
    require(next_ < tensors_.size() && std::ssize(values) == tensors_[next_].elements(), "safetensors: not the next tensor's values");
    const std::string& name = tensors_[next_].name;
    std::int64_t at = tensors_[next_++].offset;
    if (dtype_ == DType::f32) {
        file_.write(at, std::as_bytes(values));
        return;
    }
    const auto width = static_cast<std::size_t>(bytes_of(dtype_));
    std::vector<std::byte> part(static_cast<std::size_t>(std::min(strip, std::ssize(values))) * width);
    while (!values.empty()) {
        const std::span<const float> now = values.first(static_cast<std::size_t>(std::min(strip, std::ssize(values))));
        const std::span<std::byte> bytes = std::span(part).first(now.size() * width);
        if (const float lost = dtype_ == DType::f16 ? narrow<f16>(now, bytes.data()) : narrow<bf16>(now, bytes.data()); lost != 0)
            throw Error(Exit::refused, fmt::format("tensor '{}' has the value {}, which is beyond {}; allowed: a wider type", name, lost,
                                                   safetensors_name(dtype_)));
        file_.write(at, bytes);
        at += std::ssize(bytes);
        values = values.subspan(now.size());
    }
}

void SafetensorsWriter::finish() {
    require(next_ == tensors_.size(), "safetensors: not all tensors have been written");
    file_.sync();
}

}  // namespace quadrille

// Files for the data tests: a temporary folder that removes itself, and plain writers of each format. No test macros here.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace data_files {

class Folder {
  public:
    Folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "quadrille_data_XXXXXX").string();
        path_ = mkdtemp(pattern.data());
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }

    std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream(*this / name, std::ios::binary) << bytes;
        return *this / name;
    }

  private:
    std::filesystem::path path_;
};

template <class T>
void put(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T, class U>
std::string array_of(const std::vector<U>& values) {
    std::string bytes;
    for (const U& v : values) put(bytes, static_cast<T>(v));
    return bytes;
}

inline std::string read_all(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// An llm.c shard; fields can be set wrong. `count` −1: as many as there are.
template <class T>
std::string llmc_bytes(const std::vector<std::int64_t>& ids, std::int32_t magic, std::int32_t version, std::int32_t count = -1) {
    std::vector<std::int32_t> header(256, 0);
    header[0] = magic;
    header[1] = version;
    header[2] = count == -1 ? static_cast<std::int32_t>(ids.size()) : count;
    return array_of<std::int32_t>(header) + array_of<T>(ids);
}

// The fields of a Megatron index, to be made wrong one at a time.
struct Index {
    std::string magic{"MMIDIDX\0\0", 9};
    std::uint64_t version = 1;
    std::uint8_t type = 8;
    std::vector<std::int64_t> lengths, offsets, ends, modes;
    std::int64_t sequences = -1, documents = -1;  // −1: as many as there are

    std::string bytes() const {
        std::string out = magic;
        put(out, version);
        put(out, type);
        put(out, static_cast<std::uint64_t>(sequences == -1 ? static_cast<std::int64_t>(lengths.size()) : sequences));
        put(out, static_cast<std::uint64_t>(documents == -1 ? static_cast<std::int64_t>(ends.size()) : documents));
        return out + array_of<std::int32_t>(lengths) + array_of<std::int64_t>(offsets) + array_of<std::int64_t>(ends) +
               array_of<std::int8_t>(modes);
    }
};

// The index of sequences stored one after the other, `width` bytes a token; documents end after the given sequences.
inline Index index_of(const std::vector<std::vector<std::int64_t>>& sequences, int width, int type, std::vector<std::int64_t> ends) {
    Index index;
    index.type = static_cast<std::uint8_t>(type);
    std::int64_t offset = 0;
    for (const auto& s : sequences) {
        index.lengths.push_back(static_cast<std::int64_t>(s.size()));
        index.offsets.push_back(offset);
        offset += static_cast<std::int64_t>(s.size()) * width;
    }
    index.ends = std::move(ends);
    return index;
}

template <class T>
std::string sequence_bytes(const std::vector<std::vector<std::int64_t>>& sequences) {
    std::string out;
    for (const auto& s : sequences) out += array_of<T>(s);
    return out;
}

}  // namespace data_files

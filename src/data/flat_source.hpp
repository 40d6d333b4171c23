// A corpus whose files are each one plain array of tokens behind an optional header: text, raw tokens, llm.c shards.
#pragma once
#include "data/mapped_file.hpp"
#include "data/source.hpp"

#include <vector>

namespace quadrille {

// How a token is stored. f32, f64 are known by Megatron's index, and refused.
enum class StoredType { u8, i8, i16, i32, i64, u16, u32 };
int bytes_of(StoredType type);

// Converts out.size() stored values at `from` to token ids. Returns the index of the first that is negative or ≥ vocab_size, and
// its value in bad_value; out.size() if there is none.
std::int64_t convert(StoredType type, const std::byte* from, std::int64_t vocab_size, std::span<std::int32_t> out,
                     std::int64_t& bad_value);

// Converts tokens of a file from a byte offset on; throws Error{on_bad} with file, offset and value.
void read_stored(const MappedFile& file, std::int64_t byte_offset, StoredType type, std::int64_t vocab_size,
                 std::span<std::int32_t> out, Exit on_bad);

// True if no value of the type is outside of the vocabulary.
bool always_valid(StoredType type, std::int64_t vocab_size);

struct FlatFile {
    MappedFile file;
    std::int64_t header_bytes = 0, count = 0;  // tokens follow the header to the end of `count`
    StoredType type = StoredType::u8;
};

class FlatSource final : public TokenSource {
  public:
    // `files_are_documents`: each file is one document (text); else the source knows of none.
    FlatSource(std::vector<FlatFile> files, std::int64_t vocab_size, bool files_are_documents);

    std::int64_t size() const override { return first_.back(); }
    void read(std::int64_t position, std::span<std::int32_t> out, Exit on_bad) const override;
    bool has_documents() const override { return files_are_documents_; }
    void document_begins(std::int64_t position, std::span<std::uint8_t> begins) const override;
    std::int64_t next_cut(std::int64_t position) const override { return position; }
    bool ids_always_valid() const override;
    std::int64_t files() const override { return static_cast<std::int64_t>(files_.size()); }
    std::int64_t bytes() const override;
    std::vector<FileMark> marks() const override;

  private:
    std::size_t file_of(std::int64_t position) const;

    std::vector<FlatFile> files_;
    std::vector<std::int64_t> first_;  // position of each file's first token, and the end
    std::int64_t vocab_size_;
    bool files_are_documents_;
};

}  // namespace quadrille

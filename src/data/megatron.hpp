// A corpus of Megatron .bin/.idx pairs: sequences in the index's order, wherever in the .bin they lie. Owns the two mappings
// and a sparse table of positions (8 bytes per 64 sequences); nothing is written beside the files.
//
// The index, little-endian: 9 bytes "MMIDIDX\0\0", u64 version 1, u8 type code, u64 sequences, u64 document ends, int32 length
// (tokens) of each sequence, int64 byte offset of each, int64 document ends (sequence numbers, beginning with 0, the last equal
// to the sequences); multimodal files add an int8 per sequence.
#pragma once
#include "data/flat_source.hpp"
#include "data/source.hpp"

#include <string>
#include <vector>

namespace quadrille {

// One validated .bin/.idx pair.
class MegatronFile {
  public:
    // `path`: the prefix, or it with .bin or .idx. What is wrong goes to `problem`, naming the field; the pair is then empty.
    MegatronFile(const std::string& path, std::string& problem);

    std::int64_t size() const { return size_; }  // tokens
    StoredType type() const { return type_; }
    const std::string& prefix() const { return prefix_; }
    std::int64_t unused_bytes() const { return bin_.size() - size_ * bytes_of(type_); }  // of the .bin; negative if some are shared

    void read(std::int64_t position, std::int64_t vocab_size, std::span<std::int32_t> out, Exit on_bad) const;
    void mark_documents(std::int64_t position, std::span<std::uint8_t> begins) const;  // ors 1 where a document begins
    std::int64_t next_document(std::int64_t position) const;  // first document start ≥ position, or size()
    std::vector<FileMark> marks() const { return {bin_.mark(), index_.mark()}; }

  private:
    std::string read_header();
    std::string check_sequences();
    std::string check_documents() const;
    std::string check_modes() const;
    void require_index(Exit on_bad) const;  // what was read of it is what is there

    std::int64_t length(std::int64_t sequence) const { return load<std::int32_t>(index_.bytes().data() + lengths_ + 4 * sequence); }
    std::int64_t offset(std::int64_t sequence) const { return load<std::int64_t>(index_.bytes().data() + offsets_ + 8 * sequence); }
    std::int64_t document(std::int64_t i) const { return load<std::int64_t>(index_.bytes().data() + documents_ + 8 * i); }
    std::int64_t position_of(std::int64_t sequence) const;
    std::int64_t first_sequence_at(std::int64_t position) const;

    std::string prefix_;
    MappedFile bin_, index_;
    StoredType type_ = StoredType::u16;
    std::int64_t sequences_ = 0, document_ends_ = 0, size_ = 0;
    std::int64_t lengths_ = 0, offsets_ = 0, documents_ = 0, modes_ = 0;  // bytes into the index
    std::vector<std::int64_t> every_;  // position of every 64th sequence's first token
};

class MegatronSource final : public TokenSource {
  public:
    MegatronSource(std::vector<MegatronFile> files, std::int64_t vocab_size);

    std::int64_t size() const override { return first_.back(); }
    void read(std::int64_t position, std::span<std::int32_t> out, Exit on_bad) const override;
    bool has_documents() const override { return true; }
    void document_begins(std::int64_t position, std::span<std::uint8_t> begins) const override;
    std::int64_t next_cut(std::int64_t position) const override;
    bool ids_always_valid() const override;
    std::int64_t files() const override { return static_cast<std::int64_t>(files_.size()); }
    std::int64_t bytes() const override;
    std::vector<FileMark> marks() const override;

  private:
    std::size_t file_of(std::int64_t position) const;

    std::vector<MegatronFile> files_;
    std::vector<std::int64_t> first_;  // position of each pair's first token, and the end
    std::int64_t vocab_size_;
};

}  // namespace quadrille

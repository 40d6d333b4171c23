// Corpora: tokens stored in files, addressed by 64-bit position as if they were one long array. Files are memory-mapped and
// never written; nothing is cached on disk, so nothing can go stale. Sources know their format and where in which file a token
// lies, and nothing of samples or batches.
#pragma once
#include "base/error.hpp"
#include "config/config.hpp"
#include "data/mapped_file.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace quadrille {

class TokenSource {
  public:
    virtual ~TokenSource() = default;
    virtual std::int64_t size() const = 0;  // tokens

    // Tokens [position, position + out.size()). An id that is negative or ≥ vocab_size, or bytes that are gone, throw
    // Error{on_bad} with file, byte offset and value. Threads may call it at once.
    virtual void read(std::int64_t position, std::span<std::int32_t> out, Exit on_bad = Exit::io_failed) const = 0;

    // Whether the source knows its documents; if so, begins[i] = 1 where one begins at position + i, else 0.
    virtual bool has_documents() const = 0;
    virtual void document_begins(std::int64_t position, std::span<std::uint8_t> begins) const = 0;

    // The first position ≥ `position` where training and held-out data may be parted: document starts if the format has an
    // index of them, else any.
    virtual std::int64_t next_cut(std::int64_t position) const = 0;

    // True if no stored value can be outside of the vocabulary, so that ids need no scan.
    virtual bool ids_always_valid() const = 0;

    virtual std::int64_t files() const = 0;
    virtual std::int64_t bytes() const = 0;  // of the tokens as stored
    virtual std::vector<FileMark> marks() const = 0;  // of every file that it reads
};

// What opening has to say besides the corpus: one line each, for stdout and stderr.
struct Remarks {
    std::vector<std::string> notes, warnings;
};

// Opens the files of one corpus, in the given order, as data.format says (text, tokens, llmc or megatron), and validates them
// field by field. Corpora of up to 2^24 tokens are also scanned for ids outside of the vocabulary; larger ones are checked as
// they are read. Throws Error{refused} that names every bad file with what was expected and found.
std::shared_ptr<const TokenSource> open_source(const DataConfig& data, const std::vector<std::string>& paths,
                                               std::int64_t vocab_size, Remarks& remarks);

}  // namespace quadrille

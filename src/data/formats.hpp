// The file formats, each an opener that validates its files field by field. Openers add a sentence per bad file to `problems`
// and go on with the next, so that all are named at once; what they return is meaningful only if there were none.
#pragma once
#include "data/source.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace quadrille {

struct Opening {
    std::int64_t vocab_size;
    Remarks& remarks;
    std::vector<std::string>& problems;
};

// The bytes of the files are the tokens. A file that is plainly not text is a problem: one with another format's magic, or with
// a zero byte in its first 8 KiB. Empty files are nothing.
std::shared_ptr<const TokenSource> open_text(const std::vector<std::string>& paths, Opening& opening);

// Little-endian uint16 or uint32, no header. Another format's magic, or what looks like text, is only warned of.
std::shared_ptr<const TokenSource> open_tokens(const std::vector<std::string>& paths, TokenType type, Opening& opening);

// llm.c's shards: 256 int32 of header (magic, version, tokens), then uint16 (magic 20240520, version 1) or uint32 (20240801, 7).
std::shared_ptr<const TokenSource> open_llmc(const std::vector<std::string>& paths, Opening& opening);

// Megatron's PREFIX.bin and PREFIX.idx; a path is the prefix or either file.
std::shared_ptr<const TokenSource> open_megatron(const std::vector<std::string>& paths, Opening& opening);

// "a NumPy array" and the like, if the first bytes say so.
std::optional<std::string> known_format(std::span<const std::byte> bytes);

// A note where the stored type and the vocabulary are oddly matched: fewer values than ids, or twice the bytes that would do.
void remark_on_width(bool two_bytes, bool four_bytes, Opening& opening);

}  // namespace quadrille

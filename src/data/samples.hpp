// Samples: windows of seq_length + 1 tokens, addressed by number. Owns where windows lie and where documents start in them;
// knows nothing of order, batches or ranks.
#pragma once
#include "data/source.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace quadrille {

// One window, as read: `length` real tokens (2 to seq_length + 1), then zeros.
struct Window {
    std::span<std::int32_t> tokens;          // [seq_length + 1]
    std::span<std::int32_t> document_start;  // [seq_length + 1] position in the window where the token's document starts
    std::int64_t length = 0;
};

class SampleSet {
  public:
    virtual ~SampleSet() = default;
    virtual std::int64_t count() const = 0;   // samples, ≥ 1
    virtual std::int64_t tokens() const = 0;  // tokens, ≥ 2; for a source without end, those of all its samples
    std::int64_t seq_length() const { return seq_length_; }

    // Reads sample `sample` (0 ≤ sample < count) into `out`, whose spans hold seq_length + 1 entries. Threads may call it at once.
    virtual void read(std::int64_t sample, Window& out) const = 0;

  protected:
    explicit SampleSet(std::int64_t seq_length);

  private:
    std::int64_t seq_length_;
};

// Sets document_start from where documents begin: begins[i] ≠ 0 at position i of the window, for its `length` real tokens. What
// began before the window starts at 0 in it; padding belongs to the last document.
void mark_documents(std::span<const std::uint8_t> begins, Window& out);

// The same, where a document ends with the token `end_of_document`, which belongs to it.
void mark_documents_after(std::int32_t end_of_document, Window& out);

// How documents are told apart when attention and loss stop at them.
enum class Documents {
    none,       // one long text: everything is seen and counted
    by_token,   // a document ends with the token end_of_document, which belongs to it
    by_source,  // the source knows: Megatron's index, or one file of text each
};

// What to do with tokens at the end that do not fill a window.
enum class RaggedEnd {
    drop,  // training: left out, unless there is no whole window: then the one window is padded
    pad,   // evaluation: a padded window, so that every token is a target exactly once
};

// Windows over tokens [begin, end) of a corpus: sample i starts at begin + i·seq_length, so neighbours share one token, which is
// target in one and input in the other. Windows run across files and documents.
class CorpusSamples final : public SampleSet {
  public:
    // Needs end − begin ≥ 2. `end_of_document` is needed by Documents::by_token.
    CorpusSamples(std::shared_ptr<const TokenSource> source, std::int64_t begin, std::int64_t end, std::int64_t seq_length,
                  RaggedEnd ragged, Documents documents = Documents::none, std::int32_t end_of_document = -1);

    std::int64_t count() const override { return count_; }
    std::int64_t tokens() const override { return end_ - begin_; }
    void read(std::int64_t sample, Window& out) const override;

  private:
    std::shared_ptr<const TokenSource> source_;
    std::int64_t begin_, end_, count_;
    Documents documents_;
    std::int32_t end_of_document_;
};

}  // namespace quadrille

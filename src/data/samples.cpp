#include "data/samples.hpp"

#include <algorithm>

namespace quadrille {

SampleSet::SampleSet(std::int64_t seq_length) : seq_length_(seq_length) {
    require(seq_length >= 1, "a sequence has one position or more");
}

void mark_documents(std::span<const std::uint8_t> begins, Window& out) {
    std::int32_t start = 0;
    for (std::size_t i = 0; i < out.document_start.size(); ++i) {
        if (i > 0 && i < static_cast<std::size_t>(out.length) && begins[i] != 0) start = static_cast<std::int32_t>(i);
        out.document_start[i] = start;
    }
}

void mark_documents_after(std::int32_t end_of_document, Window& out) {
    std::vector<std::uint8_t> begins(static_cast<std::size_t>(out.length));
    for (std::size_t i = 1; i < begins.size(); ++i) begins[i] = out.tokens[i - 1] == end_of_document;
    mark_documents(begins, out);
}

CorpusSamples::CorpusSamples(std::shared_ptr<const TokenSource> source, std::int64_t begin, std::int64_t end, std::int64_t seq_length,
                             RaggedEnd ragged, Documents documents, std::int32_t end_of_document)
    : SampleSet(seq_length), source_(std::move(source)), begin_(begin), end_(end), documents_(documents),
      end_of_document_(end_of_document) {
    require(begin >= 0 && end - begin >= 2 && end <= source_->size(), "samples need two tokens or more of the corpus");
    require(documents != Documents::by_token || end_of_document >= 0, "documents by token need the token");
    require(documents != Documents::by_source || source_->has_documents(), "the source knows no documents");
    const std::int64_t targets = end - begin - 1, whole = targets / seq_length;
    const bool partial = targets % seq_length != 0 && (ragged == RaggedEnd::pad || whole == 0);
    count_ = whole + partial;
}

void CorpusSamples::read(std::int64_t sample, Window& out) const {
    require(sample >= 0 && sample < count_, "no such sample");
    const std::int64_t position = begin_ + sample * seq_length();
    out.length = std::min(seq_length() + 1, end_ - position);
    const auto length = static_cast<std::size_t>(out.length);
    source_->read(position, out.tokens.first(length));
    std::fill(out.tokens.begin() + out.length, out.tokens.end(), 0);
    std::fill(out.document_start.begin(), out.document_start.end(), 0);
    if (documents_ == Documents::by_token) mark_documents_after(end_of_document_, out);
    if (documents_ != Documents::by_source) return;
    std::vector<std::uint8_t> begins(length);
    source_->document_begins(position, begins);
    mark_documents(begins, out);
}

}  // namespace quadrille

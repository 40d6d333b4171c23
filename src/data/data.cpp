#include "data/data.hpp"

#include "base/format.hpp"
#include "config/names.hpp"
#include "data/markov.hpp"
#include "data/source.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quadrille {

namespace {

// What config/check.cpp has made sure of, and the code below relies on.
void require_checked(const Config& config) {
    const DataConfig& data = config.data;
    const bool synthetic = data.format == DataFormat::synthetic;
    const bool has_documents = data.end_of_document || data.format == DataFormat::text || data.format == DataFormat::megatron;
    require(synthetic || !data.train.empty(), "data: files to train on");
    require(data.split.empty() || (data.split.size() <= 3 && data.split[0] > 0), "data: up to three weights, the first positive");
    require(data.split.empty() || data.valid.empty() || synthetic, "data: one way to hold out");
    require(data.end_of_document.value_or(0) < config.model.vocab_size, "data: a document ends with a token of the vocabulary");
    require(!data.mask_across_documents || has_documents, "data: a mask needs documents");
}

Documents documents_of(const DataConfig& data) {
    if (!data.mask_across_documents) return Documents::none;
    return data.end_of_document ? Documents::by_token : Documents::by_source;
}

// Where training, validation and test part: the weights' share of the tokens, moved on to the next place the source may be cut.
struct Cuts {
    std::int64_t training = 0, validation = 0;
};

Cuts cut(const TokenSource& source, const std::vector<double>& split) {
    double sum = 0, before = 0;
    for (const double w : split) sum += w;
    std::int64_t at[2] = {source.size(), source.size()};
    for (std::size_t i = 0; i + 1 < split.size(); ++i) {
        before += split[i];
        if (before < sum) at[i] = source.next_cut(std::llround(before / sum * static_cast<double>(source.size())));
    }
    return {at[0], at[1]};
}

// Opens the parts of one run's data; fills in `out` as it goes.
class Opener {
  public:
    Opener(const Config& config, DataPosition begin, Data& out) : config_(config), data_(config.data), begin_(begin), out_(out) {}

    void open() {
        require_checked(config_);
        if (data_.end_of_document && !data_.mask_across_documents)
            out_.warnings.push_back("data.end_of_document has no effect without data.mask_across_documents");
        if (data_.format == DataFormat::synthetic) open_synthetic();
        else open_files();
        if (out_.evaluation) out_.evaluation_batches = std::min(config_.evaluation.batches, out_.evaluation->batches());
    }

  private:
    void open_synthetic();
    void open_files();
    void open_held_out(const std::shared_ptr<const TokenSource>& corpus, const Cuts& at);
    std::shared_ptr<const TokenSource> source(const std::vector<std::string>& paths);
    std::shared_ptr<const SampleSet> samples(const std::shared_ptr<const TokenSource>& source, std::int64_t begin, std::int64_t end,
                                             RaggedEnd ragged, const char* what, const std::vector<std::string>& paths);
    void describe(const char* what, const SampleSet& samples, const std::string& rest);

    const Config& config_;
    const DataConfig& data_;
    const DataPosition begin_;
    Data& out_;
};

void Opener::open_synthetic() {
    const std::uint64_t seed = config_.train.seed;
    const std::int64_t seq_length = config_.model.seq_length;
    const MarkovChain chain(seed, config_.model.vocab_size);
    std::optional<std::int32_t> end_of_document;
    if (data_.mask_across_documents) end_of_document = static_cast<std::int32_t>(*data_.end_of_document);
    out_.description.push_back(fmt::format("data: synthetic, a Markov chain over {} tokens with {} successors each; entropy {:.6f} nats "
                                           "per token, the floor of the loss (one token seen alone: {:.6f})", chain.vocab_size(),
                                           chain.branches(), chain.entropy(), std::log(static_cast<double>(chain.vocab_size()))));
    // Each sample is new and independent: there is nothing to shuffle, and no epoch ends.
    out_.training = std::make_shared<BatchReader>(std::make_shared<MarkovSamples>(chain, seed, 0, seq_length, end_of_document),
                                                  SampleOrder::training, config_.train.global_batch_size, false, 0, begin_);
    out_.evaluation = std::make_shared<BatchReader>(std::make_shared<MarkovSamples>(chain, seed, 1, seq_length, end_of_document),
                                                    SampleOrder::evaluation, config_.train.global_batch_size);
}

std::shared_ptr<const TokenSource> Opener::source(const std::vector<std::string>& paths) {
    Remarks remarks;
    auto opened = open_source(data_, paths, config_.model.vocab_size, remarks);
    out_.description.push_back(fmt::format("data: {}, {} file{}, {} tokens in {} bytes", spelling(data_.format), opened->files(),
                                           opened->files() == 1 ? "" : "s", opened->size(), opened->bytes()));
    for (FileMark& mark : opened->marks()) out_.files.push_back(std::move(mark));
    out_.description.insert(out_.description.end(), remarks.notes.begin(), remarks.notes.end());
    out_.warnings.insert(out_.warnings.end(), remarks.warnings.begin(), remarks.warnings.end());
    return opened;
}

std::shared_ptr<const SampleSet> Opener::samples(const std::shared_ptr<const TokenSource>& source, std::int64_t begin, std::int64_t end,
                                                 RaggedEnd ragged, const char* what, const std::vector<std::string>& paths) {
    if (end - begin < 2) {
        const auto others = static_cast<std::int64_t>(paths.size()) - 1;
        const std::string more = others > 0 ? " and " + format_number_of(others, "more file") : "";
        throw Error(Exit::refused, fmt::format("data: {} has {} of the {} in {}{}, but 2 or more are needed", what,
                                               format_number_of(end - begin, "token"), source->size(), paths.front(), more));
    }
    const auto end_of_document = static_cast<std::int32_t>(data_.end_of_document.value_or(-1));
    return std::make_shared<CorpusSamples>(source, begin, end, config_.model.seq_length, ragged, documents_of(data_), end_of_document);
}

void Opener::open_files() {
    const auto corpus = source(data_.train);
    const Cuts at = cut(*corpus, data_.split);
    const auto training = samples(corpus, 0, at.training, RaggedEnd::drop, "training", data_.train);
    out_.training = std::make_shared<BatchReader>(training, SampleOrder::training, config_.train.global_batch_size, data_.shuffle,
                                                  config_.train.seed, begin_);
    const auto epochs = [&](std::int64_t step) {
        return static_cast<double>(out_.training->read_before(step)) / static_cast<double>(training->count());
    };
    std::string read = fmt::format("{}; {} of {} read {:.2f} epochs", data_.shuffle ? "shuffled" : "in order",
                                   format_number_of(config_.train.steps, "step"), format_number_of(config_.train.global_batch_size, "sequence"),
                                   epochs(std::max(config_.train.steps, begin_.step)));
    if (begin_.step > 0) read += fmt::format(", of which {:.2f} are done", epochs(begin_.step));
    describe("training", *training, read);
    open_held_out(corpus, at);
}

void Opener::open_held_out(const std::shared_ptr<const TokenSource>& corpus, const Cuts& at) {
    std::shared_ptr<const SampleSet> held_out;
    if (!data_.valid.empty()) {
        for (const std::string& path : data_.valid)
            if (std::find(data_.train.begin(), data_.train.end(), path) != data_.train.end())
                out_.warnings.push_back(fmt::format("{}: is both trained on and held out", path));
        const auto other = source(data_.valid);
        held_out = samples(other, 0, other->size(), RaggedEnd::pad, "data.valid", data_.valid);
    } else if (data_.split.size() >= 2 && data_.split[1] > 0) {
        held_out = samples(corpus, at.training, at.validation, RaggedEnd::pad, "the validation part of data.split", data_.train);
    }
    if (!held_out) return;
    out_.evaluation = std::make_shared<BatchReader>(held_out, SampleOrder::evaluation, config_.train.global_batch_size);
    const std::int64_t most = config_.evaluation.batches * config_.train.global_batch_size;
    describe("held out", *held_out, fmt::format("an evaluation reads {}", std::min(most, held_out->count())));
}

void Opener::describe(const char* what, const SampleSet& samples, const std::string& rest) {
    const bool padded = samples.tokens() < samples.seq_length() + 1;
    out_.description.push_back(fmt::format("{}: {} tokens, {} sample{} of {} tokens{}, {}", what, samples.tokens(), samples.count(),
                                           samples.count() == 1 ? "" : "s", samples.seq_length() + 1, padded ? " (padded)" : "", rest));
}

}  // namespace

Data open_data(const Config& config, DataPosition begin) {
    Data data;
    Opener(config, begin, data).open();
    return data;
}

}  // namespace quadrille

// Files of tokens in every format: what is opened is read as batches that keep to the vocabulary, and what is not is refused.
//
// An input is a format's letter, a byte of choices, one that picks the vocabulary, one the length of a sequence, and the file's bytes; of Megatron's
// pair a u16 with the bytes of the .bin, the .bin and the .idx.
#include "fuzz/fuzz.hpp"

#include "data/data.hpp"

using namespace quadrille;
using namespace quadrille::fuzz;

namespace {

constexpr std::size_t header_bytes = 4, llmc_header = 1024;
constexpr std::int64_t vocabularies[] = {2, 5, 256, 300, 50257, 65536, 65537, INT32_MAX};
constexpr std::int64_t scanned = std::int64_t{1} << 24;  // tokens: ids of larger corpora are checked as they are read

enum Choice : unsigned { mask_documents = 1, split = 2, held_out = 4, end_token = 8, shuffle = 16, large = 32, twice = 64 };

// Files of more than 64 KiB are mapped, smaller ones copied.
std::string stretched(std::string_view bytes) {
    std::string all;
    while (!bytes.empty() && all.size() <= (64 << 10)) all += bytes;
    return all;
}

// Writes the input's file or files; the path that data.train names.
std::string write_files(const std::filesystem::path& folder, DataFormat format, bool stretch, Bytes& input) {
    if (format != DataFormat::megatron) return write(folder / "tokens", stretch ? stretched(input.rest()) : input.rest());
    const std::string_view tokens = input.text(input.number<std::uint16_t>());
    write(folder / "pair.bin", stretch ? stretched(tokens) : tokens);
    write(folder / "pair.idx", input.rest());
    return (folder / "pair").string();
}

Config config_of(Bytes& input, const std::filesystem::path& folder) {
    Config c;
    const std::uint8_t letter = input.byte();
    c.data.format = letter == 't' ? DataFormat::text : letter == 'l' ? DataFormat::llmc : letter == 'm' ? DataFormat::megatron : DataFormat::tokens;
    c.data.dtype = letter == '4' ? TokenType::uint32 : TokenType::uint16;
    const unsigned choices = input.byte();
    c.model.vocab_size = vocabularies[input.byte() % std::size(vocabularies)];
    c.model.seq_length = 1 + input.byte() % 16;
    c.train.global_batch_size = 3;
    c.train.steps = 2;
    c.data.train = {write_files(folder, c.data.format, (choices & large) != 0, input)};
    if ((choices & twice) != 0) c.data.train.push_back(c.data.train[0]);
    if ((choices & held_out) != 0) c.data.valid = c.data.train;
    else if ((choices & split) != 0) c.data.split = {80, 15, 5};
    if ((choices & end_token) != 0) c.data.end_of_document = 1;
    const bool documents = (choices & end_token) != 0 || letter == 't' || letter == 'm';
    c.data.mask_across_documents = documents && (choices & mask_documents) != 0;
    c.data.shuffle = (choices & shuffle) != 0;
    return c;
}

void check(const Batch& batch, std::int64_t vocab_size) {
    std::int64_t counted = 0;
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
        const auto position = static_cast<std::int64_t>(i) % batch.seq_length;
        for (const std::int32_t id : {batch.tokens[i], batch.targets[i]}) expect(id >= 0 && id < vocab_size, "ids lie within the vocabulary");
        expect(batch.mask[i] <= 1, "a mask is 0 or 1");
        expect(batch.document_start[i] >= 0 && batch.document_start[i] <= position, "a position's document starts at or before it");
        expect(position == 0 || batch.document_start[i] >= batch.document_start[i - 1], "document_start never falls along a row");
        counted += batch.mask[i];
    }
    expect(counted == batch.counted, "counted is the ones in mask");
}

void read(const BatchReader& reader, std::int64_t steps, std::int64_t vocab_size) {
    const std::vector<std::int64_t> all = {0, 1, 2};
    Batch batch, again;
    for (std::int64_t step = 0; step < std::min(steps, reader.batches()); ++step) {
        reader.read(step, all, batch);
        check(batch, vocab_size);
        reader.read(step, all, again);
        expect(batch.tokens == again.tokens && batch.hash == again.hash, "the bits never depend on who reads");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const TemporaryDirectory folder;
    Bytes input(data, size);
    const Config config = config_of(input, folder.path());
    Data opened;
    if (!takes([&] { opened = open_data(config); })) return 0;
    const auto read_all = [&] {
        read(*opened.training, config.train.steps, config.model.vocab_size);
        if (opened.evaluation) read(*opened.evaluation, opened.evaluation_batches, config.model.vocab_size);
    };
    if (opened.training->samples().tokens() > scanned / 2) takes(read_all);
    else read_all();  // all of it has been looked at
    return 0;
}

namespace {

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
    if (at + sizeof value <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof value);
}

void put_odd_number(std::string& bytes, std::minstd_rand& random) {
    const std::size_t at = random() % bytes.size();
    const std::int64_t value = odd_number(random);
    switch (random() % 3) {
        case 0: return put(bytes, at, static_cast<std::int16_t>(value));
        case 1: return put(bytes, at, static_cast<std::int32_t>(value));
        default: return put(bytes, at, value);
    }
}

// A shard whose header fits its file, of as many tokens as there is room for.
void mend_llmc(std::string& bytes, std::minstd_rand& random) {
    const bool wide = random() % 2 == 0;
    bytes.resize(std::max(bytes.size(), header_bytes + llmc_header + 4));
    bytes.resize(bytes.size() - bytes.size() % 4);
    put<std::int32_t>(bytes, header_bytes, wide ? 20240801 : 20240520);
    put<std::int32_t>(bytes, header_bytes + 4, wide ? 7 : 1);
    put(bytes, header_bytes + 8, static_cast<std::int32_t>((bytes.size() - header_bytes - llmc_header) / (wide ? 4 : 2)));
}

// An index of sequences that lie in the .bin one after the other, some empty, and of documents among them.
void mend_megatron(std::string& bytes, std::minstd_rand& random) {
    constexpr std::uint8_t types[] = {1, 2, 3, 4, 5, 8}, widths[] = {1, 1, 2, 4, 8, 2};
    const std::size_t type = random() % std::size(types), width = widths[type], tokens = 8 + random() % 64, sequences = 1 + random() % 80;
    std::string index("MMIDIDX\0\0", 9);
    const auto add = [&](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
    add(std::uint64_t{1});
    add(types[type]);
    add(std::uint64_t{sequences});
    std::vector<std::int32_t> lengths(sequences);
    for (std::size_t t = 0; t < tokens; ++t) ++lengths[random() % sequences];
    std::vector<std::int64_t> ends = {0};
    for (std::size_t s = 1; s < sequences; ++s)
        if (random() % 3 == 0) ends.push_back(static_cast<std::int64_t>(s));
    ends.push_back(static_cast<std::int64_t>(sequences));
    add(std::uint64_t{ends.size()});
    std::int64_t offset = 0;
    for (const std::int32_t length : lengths) add(length);
    for (const std::int32_t length : lengths) {
        add(offset);
        offset += length * static_cast<std::int64_t>(width);
    }
    for (const std::int64_t end : ends) add(end);
    bytes.resize(header_bytes);
    const auto size = static_cast<std::uint16_t>(tokens * width);
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    for (std::size_t t = 0; t < size; ++t) bytes += static_cast<char>(t % width == 0 ? random() % 4 : 0);
    bytes += index;
}

}  // namespace

// Beside libFuzzer's own changes: a number that is odd somewhere, and a file that is whole again, so that the checks behind the first are reached.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
    std::minstd_rand random(seed);
    const auto pick = random() % 8;
    if (pick < 4 || size < header_bytes) return LLVMFuzzerMutate(data, size, most);
    std::string bytes(reinterpret_cast<const char*>(data), size);
    if (pick == 4 && bytes[0] == 'l') mend_llmc(bytes, random);
    else if (pick == 4 && bytes[0] == 'm') mend_megatron(bytes, random);
    else put_odd_number(bytes, random);
    if (bytes.size() > most) return LLVMFuzzerMutate(data, size, most);
    std::memcpy(data, bytes.data(), bytes.size());
    return bytes.size();
}

// From Config to readers: splits, held-out sets, what is described, and what of the input is refused.
#include <doctest.h>

#include "data/data.hpp"
#include "unit/data_files.hpp"

#include <algorithm>
#include <cmath>
#include <sys/stat.h>

using namespace quadrille;
using namespace data_files;

namespace {

Config text_config(const std::string& path) {
    Config config;
    config.model.vocab_size = 256;
    config.model.seq_length = 8;
    config.train.global_batch_size = 4;
    config.train.steps = 10;
    config.data.train = {path};
    return config;
}

std::string letters(std::int64_t n) {
    std::string text;
    for (std::int64_t i = 0; i < n; ++i) text += static_cast<char>('a' + i % 26);
    return text;
}

std::string refusal(const Config& config) {
    try {
        open_data(config);
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::refused);
        return e.what();
    }
    return "";
}

void check_names(const std::string& message, const std::vector<std::string>& parts) {
    INFO(message);
    for (const std::string& part : parts) CHECK_MESSAGE(message.find(part) != std::string::npos, part);
}

std::string joined(const std::vector<std::string>& lines) {
    std::string all;
    for (const auto& line : lines) all += line + "\n";
    return all;
}

}  // namespace

TEST_CASE("a text is described and served") {
    const Folder dir;
    Config config = text_config(dir.write("a.txt", letters(1000)));
    config.data.valid = {dir.write("b.txt", letters(20))};
    const Data data = open_data(config);
    CHECK(data.training->samples().count() == 124);
    CHECK(data.evaluation->samples().count() == 3);
    CHECK(data.evaluation_batches == 1);
    CHECK(data.warnings.empty());
    check_names(joined(data.description), {"text, 1 file, 1000 tokens", "124 samples of 9 tokens", "10 steps of 4 sequences read 0.32 epochs",
                                           "held out: 20 tokens, 3 samples"});
}

TEST_CASE("split parts one corpus by weight") {
    const Folder dir;
    Config config = text_config(dir.write("a.txt", letters(1000)));
    config.data.split = {969, 30, 1};
    const Data data = open_data(config);
    CHECK(data.training->samples().tokens() == 969);
    CHECK(data.evaluation->samples().tokens() == 30);
    Batch batch;
    data.evaluation->read(0, std::vector<std::int64_t>{0}, batch);
    CHECK(batch.tokens[0] == 'a' + 969 % 26);
    config.data.split = {9, 1};
    CHECK(open_data(config).evaluation->samples().tokens() == 100);
    config.data.split = {1, 0};
    CHECK(open_data(config).evaluation == nullptr);
    config.data.split = {999.5, 0.5};
    check_names(refusal(config), {"validation part", "0 tokens", "1000"});
}

TEST_CASE("a corpus with an index is parted between documents") {
    const Folder dir;
    std::vector<std::vector<std::int64_t>> sequences;
    std::vector<std::int64_t> ends = {0};
    for (int i = 0; i < 10; ++i) {
        sequences.emplace_back(30, i);
        ends.push_back(i + 1);
    }
    dir.write("m.bin", sequence_bytes<std::uint16_t>(sequences));
    dir.write("m.idx", index_of(sequences, 2, 8, ends).bytes());
    Config config = text_config(dir / "m");
    config.data.format = DataFormat::megatron;
    config.data.split = {75, 15, 10};
    config.data.mask_across_documents = true;
    const Data data = open_data(config);
    CHECK(data.training->samples().tokens() == 240);
    CHECK(data.evaluation->samples().tokens() == 30);
    Batch batch;
    data.evaluation->read(0, std::vector<std::int64_t>{0, 1, 2, 3}, batch);
    CHECK(batch.counted == 29);
    CHECK(batch.tokens[0] == 8);
    config.data.shuffle = false;
    open_data(config).training->read(0, std::vector<std::int64_t>{3}, batch);  // tokens 24 to 32: a document begins at 30
    CHECK(batch.document_start == std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 6, 6});
    CHECK(batch.mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 1, 1});
    config.data.split = {1, 99};
    CHECK(open_data(config).training->samples().tokens() == 30);
    config.data.split = {99, 1};
    check_names(refusal(config), {"validation part", "0 tokens"});
}

TEST_CASE("documents of text are its files, or end with a token") {
    const Folder dir;
    Config config = text_config(dir.write("a", "abc|"));
    config.data.train.push_back(dir.write("b", "defgh"));
    config.data.shuffle = false;
    config.train.global_batch_size = 1;
    config.data.mask_across_documents = true;
    Batch batch;
    open_data(config).training->read(0, std::vector<std::int64_t>{0}, batch);
    CHECK(batch.mask == std::vector<std::uint8_t>{1, 1, 1, 0, 1, 1, 1, 1});
    CHECK(batch.document_start[4] == 4);
    config.data.end_of_document = 'e';
    open_data(config).training->read(0, std::vector<std::int64_t>{0}, batch);
    CHECK(batch.mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 1, 1});
    config.data.mask_across_documents = false;
    const Data data = open_data(config);
    check_names(joined(data.warnings), {"end_of_document has no effect"});
    data.training->read(0, std::vector<std::int64_t>{0}, batch);
    CHECK(batch.counted == 8);
}

TEST_CASE("synthetic data has a printed floor, no end and no files") {
    Config config = text_config("");
    config.data.format = DataFormat::synthetic;
    config.data.train.clear();
    config.model.vocab_size = 257;
    config.evaluation = {.interval = 5, .batches = 3};
    const Data data = open_data(config);
    check_names(joined(data.description), {"synthetic", "257 tokens", "1.213008", "5.549076"});
    CHECK(data.evaluation_batches == 3);
    Batch a, b;
    data.training->read(std::int64_t{1} << 40, std::vector<std::int64_t>{0, 3}, a);
    open_data(config).training->read(std::int64_t{1} << 40, std::vector<std::int64_t>{0, 3}, b);
    CHECK(a.tokens == b.tokens);
    data.evaluation->read(0, std::vector<std::int64_t>{0}, b);
    CHECK(b.counted == 8);
    config.train.seed += 1;
    open_data(config).training->read(std::int64_t{1} << 40, std::vector<std::int64_t>{0, 3}, b);
    CHECK(a.tokens != b.tokens);
}

TEST_CASE("a held-out set of one sample") {
    const Folder dir;
    Config config = text_config(dir.write("a", letters(100)));
    config.data.valid = {dir.write("v", letters(9))};
    config.evaluation = {.interval = 1, .batches = 10};
    const Data data = open_data(config);
    CHECK(data.evaluation_batches == 1);
    std::int64_t counted = 0;
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        Batch batch;
        data.evaluation->read(0, std::vector<std::int64_t>{rank}, batch);
        CHECK(batch.counted == (rank == 0 ? 8 : 0));
        counted += batch.counted;
    }
    CHECK(counted == 8);
}

TEST_CASE("files too short to train on are refused; what config/check refuses does not come here") {
    const Folder dir;
    Config config = text_config(dir.write("a", letters(100)));
    config.data.end_of_document = 256;
    CHECK_THROWS_AS(open_data(config), std::logic_error);
    config.data.end_of_document.reset();
    config.data.train.clear();
    CHECK_THROWS_AS(open_data(config), std::logic_error);
    config = text_config(dir.write("one", "x"));
    check_names(refusal(config), {"training", "1 token", "2 or more"});
    config = text_config(dir.write("two", "xy"));
    config.data.valid = {dir / "one"};
    check_names(refusal(config), {"data.valid", "1 token of", "/one"});
    config = text_config(dir.write("none", ""));
    check_names(refusal(config), {"0 tokens"});
}

TEST_CASE("a file both trained on and held out is warned of") {
    const Folder dir;
    Config config = text_config(dir.write("a", letters(100)));
    config.data.valid = config.data.train;
    check_names(joined(open_data(config).warnings), {"both trained on and held out"});
}

TEST_CASE("nothing is written beside the data, and a changed file is seen at the next opening") {
    const Folder dir;
    std::filesystem::create_directory(dir / "ro");
    dir.write("ro/m.bin", array_of<std::uint16_t>(std::vector<int>(100, 3)));
    dir.write("ro/m.idx", index_of({std::vector<std::int64_t>(100, 3)}, 2, 8, {0, 1}).bytes());
    Config config = text_config(dir / "ro/m");
    config.data.format = DataFormat::megatron;
    REQUIRE(chmod((dir / "ro").c_str(), 0555) == 0);
    CHECK(open_data(config).training->samples().tokens() == 100);
    CHECK(std::distance(std::filesystem::directory_iterator(dir / "ro"), {}) == 2);
    REQUIRE(chmod((dir / "ro").c_str(), 0755) == 0);
    dir.write("ro/m.bin", array_of<std::uint16_t>(std::vector<int>(60, 4)));
    dir.write("ro/m.idx", index_of({std::vector<std::int64_t>(60, 4)}, 2, 8, {0, 1}).bytes());
    CHECK(open_data(config).training->samples().tokens() == 60);
}

// The logits of an imported model against those that the reference library has stored (make_hugging_face.py), on one rank. Runs the product's import
// and its evaluation program; reads the logits where that program leaves them: but for the few bytes that its last ops take again, all are compared.
#include "exchange/exchange.hpp"
#include "mpi/mpi_main.hpp"
#include "runtime/addresses.hpp"
#include "train/session.hpp"
#include "unit/temporary_directory.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fstream>

using namespace quadrille;
using quadrille::test::world;

namespace fs = std::filesystem;

namespace {

constexpr double tolerance = 1e-5;

template <class T>
std::vector<T> read_all(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::vector<T> values(fs::file_size(file) / sizeof(T));
    in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    REQUIRE(in.good());
    return values;
}

struct Logits {
    ByteRange range;
    std::vector<ByteRange> taken;  // of it, by later ops
};

Logits logits_of(const Program& program, const Coordinate& at) {
    Logits found;
    for (const Op& op : program.ops) {
        if (op.kind == Kind::logit_max) found.range = range_of(program, at, program.inputs(op)[0]);
        if (found.range.empty()) continue;
        for (const TensorId t : program.outputs(op)) found.taken.push_back(range_of(program, at, t));
        if (op.workspace >= 0) found.taken.push_back(workspace_of(program, op));
    }
    std::erase_if(found.taken, [&](const ByteRange& r) { return !r.overlaps(found.range); });
    return found;
}

// Tokens and the next ones of all sequences, in order; all are counted.
void fill(const LoadRequest& r, const std::vector<std::uint16_t>& tokens, std::int64_t length) {
    std::int64_t at = 0;
    for (const std::int64_t s : r.sequences)
        for (const std::int64_t p : r.positions) {
            const std::int64_t place = s * length + p + (r.input == Input::targets);
            if (r.input == Input::mask) static_cast<std::uint8_t*>(r.to)[at++] = 1;
            else static_cast<std::int32_t*>(r.to)[at++] = tokens[static_cast<std::size_t>(place)];
        }
}

}  // namespace

TEST_CASE("logits of an imported model are the reference library's") {
    for (const char* name : {"gpt2", "gpt2_untied", "llama", "llama_biased_tied"}) {
        CAPTURE(name);
        const fs::path stored = fs::path(QUADRILLE_GOLDEN) / "hugging_face" / name;
        const TemporaryDirectory scratch;
        const Imported model = import_model(stored, scratch.path() / "steps");
        const fs::path input = scratch.path() / "run.yaml";
        std::ofstream(input) << model_section(model.config);
        const std::string tokens_file = (stored / "tokens.u16").string();
        Session session(world(), {"", input.string(),
                                  {"train.global_batch_size=4", "train.micro_batch_size=4", "evaluation.interval=1", "evaluation.batches=1",
                                   "data.format=tokens", "data.train=[" + tokens_file + "]", "data.valid=[" + tokens_file + "]",
                                   "device.threads=1", "checkpoint.resume=" + model.checkpoint.string(),
                                   "output.directory=" + (scratch.path() / "run").string()}});
        const std::vector<std::uint16_t> tokens = read_all<std::uint16_t>(stored / "tokens.u16");
        StepInputs in;
        in.load = [&](const LoadRequest& r) { fill(r, tokens, model.config.model.seq_length); };
        session.evaluate().run(in);
        const Program& program = *session.evaluation_program();
        const auto [range, taken] = logits_of(program, session.coordinate);
        const std::vector<float> due = read_all<float>(stored / "logits.f32");
        constexpr std::int64_t width = sizeof(float);
        REQUIRE(range.end - range.begin == std::ssize(due) * width);
        std::vector<float> found(due.size());
        std::memcpy(found.data(), session.arena().data(range.tier) + range.begin, due.size() * sizeof(float));
        double most = 0;
        std::int64_t compared = 0;
        for (std::int64_t i = 0; i < std::ssize(due); ++i) {
            const ByteRange one{range.tier, range.begin + i * width, range.begin + (i + 1) * width};
            if (std::any_of(taken.begin(), taken.end(), [&](const ByteRange& r) { return r.overlaps(one); })) continue;
            const auto k = static_cast<std::size_t>(i);
            most = std::max(most, std::abs(static_cast<double>(found[k]) - static_cast<double>(due[k])));
            ++compared;
        }
        CHECK(compared * 10 > std::ssize(due) * 8);
        CHECK(most < tolerance);
        fmt::print("{}: {} of {} logits within {:.1e}\n", name, compared, due.size(), most);
    }
}

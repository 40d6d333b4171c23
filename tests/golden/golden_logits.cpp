// The logits of an imported model against those that the reference library has stored (make_hugging_face.py), on one rank: all of them. Runs the
// product's import and its evaluation program up to the op that makes the logits, for the ops of the loss, which follow, take some of their bytes
// again.
#include "config/load.hpp"
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

// The program without all that comes behind its logits; `logits` is where they are.
Program up_to_logits(const Program& whole, TensorId& logits) {
    Program p = whole;
    const auto last = std::find_if(p.ops.begin(), p.ops.end(), [](const Op& op) { return op.kind == Kind::logit_max; });
    REQUIRE(last != p.ops.end());
    logits = p.inputs(*last)[0];
    p.ops.erase(last, p.ops.end());
    p.loss = p.norm = -1;
    return p;
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
        TensorId logits = -1;
        const Program program = up_to_logits(*session.evaluation_program(), logits);
        ExecutorOptions options;
        options.number = 2;  // after training and evaluation
        Executor(program, world(), session.engine(), session.arena(), options).run(in);
        const ByteRange range = range_of(program, session.coordinate, logits);
        const std::vector<float> due = read_all<float>(stored / "logits.f32");
        REQUIRE(range.end - range.begin == std::ssize(due) * static_cast<std::int64_t>(sizeof(float)));
        std::vector<float> found(due.size());
        std::memcpy(found.data(), session.arena().data(range.tier) + range.begin, due.size() * sizeof(float));
        double most = 0;
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < due.size(); ++i) {
            const double off = std::abs(static_cast<double>(found[i]) - static_cast<double>(due[i]));
            most = std::max(most, off);
            wrong += !(off < tolerance);  // NaN too
        }
        CHECK(wrong == 0);
        fmt::print("{}: {} logits within {:.1e}\n", name, due.size(), most);
    }
}

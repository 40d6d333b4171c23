// Stored texts of small programs and stored bytes of their peaks: a change that nobody meant shows as a difference. Memory needs
// this most: a program that keeps too much is right in every number.
//
//     test_unit_compile_golden --update      writes the files anew; review what git says of them
#include "compile_fixture.hpp"
#include "ir/print.hpp"

#include <doctest.h>

#include <cstring>
#include <fstream>
#include <sstream>

using namespace quadrille;
using namespace quadrille::test;

namespace {

bool update = false;

void compare(const std::string& name, const std::string& now) {
    const std::string path = std::string(QUADRILLE_SOURCE) + "/tests/unit/golden/" + name;
    if (update) {
        std::ofstream(path) << now;
        return;
    }
    std::ifstream file(path);
    REQUIRE_MESSAGE(file, path << " is missing: run with --update");
    std::istringstream fresh(now);
    std::string want, have;
    for (int line = 1;; ++line) {
        const bool more = static_cast<bool>(std::getline(file, want)), got = static_cast<bool>(std::getline(fresh, have));
        if (!more && !got) return;
        if (!more) want = "(nothing)";
        if (!got) have = "(nothing)";
        REQUIRE_MESSAGE(want == have, name << ":" << line << "\n  stored  " << want << "\n  now     " << have);
    }
}

std::string texts(const Config& c) {
    std::string s;
    for (const Program& p : compile(c, Purpose::training, {}).programs) s += fmt::format("pp {}\n{}", p.coordinate, text(p));
    return s;
}

Config tiny(std::int64_t layers) {
    Config c = small_gpt(layers);
    c.train.global_batch_size = 4;
    c.train.gradient_accumulation_steps = 2;
    return c;
}

std::string peaks(const std::string& name, const Config& config) {
    const Compiled c = compile(config, Purpose::training, some_workspace);
    std::string s;
    for (const Program& p : c.programs) {
        const TierPeak& d = p.peaks[0];
        s += fmt::format(
            "{:28} pp {}  {:5} ops  arena {:7} = weights {:6} gradients {:6} optimizer {:6} activations {:6} buffers {:6} "
            "packing {:5}\n",
            name, p.coordinate, p.ops.size(), d.arena, d.books[0], d.books[1], d.books[2], d.books[3], d.books[4], d.packing);
    }
    return s;
}

}  // namespace

TEST_CASE("text of one layer over tp 2, dp 2") {
    Config c = on_grid(tiny(1), 2, 2, 1, 1);
    compare("gpt_tp2_dp2.txt", texts(c));
}

TEST_CASE("text of two llama layers over pp 2, sp 2, zero-bubble") {
    Config c = on_grid(small_llama(2), 1, 1, 2, 2);
    c.train.global_batch_size = 4;
    c.train.gradient_accumulation_steps = 2;
    c.pipeline.schedule = Schedule::zero_bubble;
    compare("llama_pp2_sp2.txt", texts(c));
}

TEST_CASE("the text does not depend on when or how often it is made") {
    CHECK(texts(on_grid(tiny(2), 1, 1, 2, 1)) == texts(on_grid(tiny(2), 1, 1, 2, 1)));
}

TEST_CASE("peaks") {
    std::string s = peaks("one rank", small_gpt());
    s += peaks("tp 2 dp 2", on_grid(small_gpt(), 2, 2, 1, 1));
    Config megatron = on_grid(small_gpt(), 1, 2, 1, 2);
    megatron.tensor.sequence_parallel = true;
    s += peaks("tp 2 sp 2 megatron", megatron);
    for (const auto& [name, kind, stages] :
         {std::tuple("pp 4 1f1b", Schedule::one_f_one_b, 1), std::tuple("pp 4 gpipe", Schedule::gpipe, 1),
          std::tuple("pp 4 zero-bubble", Schedule::zero_bubble, 1), std::tuple("pp 4 interleaved", Schedule::interleaved, 2)}) {
        Config c = on_grid(small_gpt(8), 1, 1, 4, 1);
        c.train.global_batch_size = 16;
        c.train.gradient_accumulation_steps = 8;
        c.pipeline.schedule = kind;
        c.pipeline.virtual_stages = stages;
        s += peaks(name, c);
    }
    Config half = on_grid(small_llama(), 2, 2, 1, 1);
    half.train.precision = Precision::bf16;
    s += peaks("tp 2 dp 2 bf16", half);
    Config eager = on_grid(small_gpt(), 2, 2, 1, 1);
    eager.comm.overlap = false;
    s += peaks("tp 2 dp 2 no overlap", eager);
    compare("peaks.txt", s);
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) update = update || std::strcmp(argv[i], "--update") == 0;
    doctest::Context context(argc, argv);
    return context.run();
}

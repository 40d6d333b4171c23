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

std::string texts(const Config& c, bool through_host = false) {
    Workspace workspace;
    workspace.through_host = through_host;
    std::string s;
    for (const Program& p : compile(c, Purpose::training, workspace).programs) s += fmt::format("pp {}\n{}", p.coordinate, text(p));
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

TEST_CASE("text of one layer, hybrid shards of stage 2 and all of stage 3") {
    Config hybrid = on_grid(tiny(1), 4, 1, 1, 1);
    hybrid.train.global_batch_size = 8;
    hybrid.train.gradient_accumulation_steps = 2;
    hybrid.sharding.zero_stage = 2;
    hybrid.sharding.shard_size = 2;
    compare("gpt_zero2_dp4.txt", texts(hybrid));
    Config cut = on_grid(tiny(1), 2, 1, 1, 1);
    cut.sharding.zero_stage = 3;
    compare("gpt_zero3_dp2.txt", texts(cut));
}

TEST_CASE("text of one layer through host memory, over sp 2 and hybrid shards of stage 2") {
    Config c = on_grid(tiny(1), 2, 1, 1, 2);
    c.sharding.zero_stage = 2;
    c.sharding.shard_size = 1;
    compare("gpt_staged_dp2_sp2.txt", texts(c, true));
}

TEST_CASE("text of two layers with adapters on the second's q and down, tp 2, sequence parallel, dp 2 at stage 3") {
    Config c = on_grid(tiny(2), 2, 2, 1, 1);
    c.tensor.sequence_parallel = true;
    c.sharding.zero_stage = 3;
    c.lora = {2, 6, {"1.attention.q", "1.mlp.down"}};
    compare("gpt_lora_tp2_dp2.txt", texts(c));
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
    for (const int stage : {1, 2, 3})
        for (const int prefetch : {0, 1, 2}) {
            Config c = on_grid(wide(small_gpt(4)), 2, 1, 1, 1);
            c.sharding.zero_stage = stage;
            c.sharding.prefetch = prefetch;
            c.comm.bucket_size = 40000;
            if (stage == 3 || prefetch == 1) s += peaks(fmt::format("stage {} dp 2 prefetch {}", stage, prefetch), c);
            c.sharding.keep_gathered = true;
            if (stage == 3 && prefetch == 1) s += peaks("stage 3 dp 2, kept", c);
        }
    compare("peaks.txt", s);
}

TEST_CASE("peaks with adapters") {
    Config c = wide(small_gpt(4));
    c.lora = {4, 8, {"all"}};
    std::string s = peaks("one rank", c);
    s += peaks("tp 2 dp 2", on_grid(c, 2, 2, 1, 1));
    Config megatron = on_grid(c, 1, 2, 1, 2);
    megatron.tensor.sequence_parallel = true;
    s += peaks("tp 2 sp 2 megatron", megatron);
    for (const Schedule kind : {Schedule::one_f_one_b, Schedule::zero_bubble}) {
        Config staged = on_grid(c, 1, 1, 4, 1);
        staged.pipeline.schedule = kind;
        s += peaks(kind == Schedule::zero_bubble ? "pp 4 zero-bubble" : "pp 4 1f1b", staged);
        staged.lora.targets = {"layers.2"};
        s += peaks("... one layer adapted", staged);
    }
    for (const int prefetch : {0, 1, 2}) {
        Config cut = on_grid(c, 2, 1, 1, 1);
        cut.sharding.zero_stage = 3;
        cut.sharding.prefetch = prefetch;
        s += peaks(fmt::format("stage 3 dp 2 prefetch {}", prefetch), cut);
    }
    compare("peaks_lora.txt", s);
}

TEST_CASE("peaks with recompute") {
    std::string s;
    for (const auto& [name, granularity] : {std::pair("none", Granularity::none), std::pair("selective", Granularity::selective),
                                            std::pair("full", Granularity::full)}) {
        Config c = small_gpt(8);
        c.recompute.granularity = granularity;
        s += peaks(fmt::format("one rank {}", name), c);
        Config megatron = on_grid(c, 1, 2, 1, 2);
        megatron.tensor.sequence_parallel = true;
        s += peaks(fmt::format("tp 2 sp 2 megatron {}", name), megatron);
        for (const Schedule kind : {Schedule::one_f_one_b, Schedule::zero_bubble}) {
            Config staged = on_grid(c, 1, 1, 2, 1);
            staged.pipeline.schedule = kind;
            s += peaks(fmt::format("{} {}", kind == Schedule::zero_bubble ? "zero-bubble" : "1f1b", name), staged);
        }
    }
    compare("peaks_recompute.txt", s);
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) update = update || std::strcmp(argv[i], "--update") == 0;
    doctest::Context context(argc, argv);
    return context.run();
}

// The arena, painted before a step: every word that an op's result should cover has been written, and nothing else.
#include "mpi_main.hpp"
#include "runtime/waits.hpp"
#include "runtime_train.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace quadrille;
using namespace quadrille::test;

namespace {

constexpr std::uint32_t paint = 0xA5A5A5A5u;  // as a float -2.9e-16, as a token out of any vocabulary: no result is this

void mark(std::vector<bool>& words, const ByteRange& r) { std::fill(words.begin() + r.begin / 4, words.begin() + (r.end + 3) / 4, true); }

void check_touched(const Config& config) {
    Trainer trainer(world(), config);
    Arena& arena = trainer.arena();
    const auto count = static_cast<std::size_t>(arena.size(Tier::device) / 4);
    const Program& p = trainer.program();
    const Coordinate at = p.grid().coordinate(world().rank());
    std::vector<bool> given(count), written(count), state(count);
    for (const Buffer& b : p.buffers)
        if (b.persistent) mark(state, {b.tier, b.offset, b.offset + b.bytes});
    for (const Op& op : p.ops) {
        for (const TensorId t : p.inputs(op)) mark(given, range_of(p, at, t));
        for (const TensorId t : p.outputs(op)) mark(given, range_of(p, at, t));
        mark(given, workspace_of(p, op));
        if (op.kind == Kind::split || op.kind == Kind::join) continue;
        for (const TensorId t : p.outputs(op)) mark(written, range_of(p, at, t));
    }
    mark(given, {Tier::device, arena.size(Tier::device) - p.staging[0], arena.size(Tier::device)});
    auto* words = reinterpret_cast<std::uint32_t*>(arena.data(Tier::device));
    for (std::size_t i = 0; i < count; ++i)
        if (!state[i]) words[i] = paint;
    trainer.step(0);
    std::size_t unwritten = 0, strayed = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (state[i]) continue;
        const bool touched = words[i] != paint;
        unwritten += written[i] && !touched;
        strayed += !given[i] && touched;
    }
    CHECK(unwritten == 0);
    CHECK(strayed == 0);
}

}  // namespace

TEST_CASE("a step writes its results' bytes and no others") {
    const bool many = world().size() == 4;
    for (const bool llama : {false, true}) {
        check_touched(many ? on_grid(tiny(llama), 1, 2, 2, 1) : tiny(llama));
        check_touched(many ? on_grid(tiny(llama), 2, 1, 1, 2) : tiny(llama));
    }
    Config c = many ? on_grid(tiny(true), 1, 2, 1, 2) : tiny(true);
    for (const Precision p : {Precision::bf16, Precision::fp16}) {
        c.train.precision = p;
        check_touched(c);
    }
}

TEST_CASE("non-finite gradients write nothing, on all ranks alike") {
    Config c = world().size() == 4 ? on_grid(tiny(false), 1, 2, 2, 1) : tiny(false);
    Trainer trainer(world(), c);
    const Program& p = trainer.program();
    // One weight of the last unit of one rank becomes infinite.
    const std::vector<float> before = trainer.gather(0, StateKind::master);
    for (const Op& op : p.ops)
        if (op.kind == Kind::adamw && world().rank() == world().size() - 1) {
            const ByteRange r = range_of(p, p.grid().coordinate(world().rank()), p.inputs(op)[0]);
            const float infinite = std::numeric_limits<float>::infinity();
            std::memcpy(trainer.arena().data(Tier::device) + r.begin, &infinite, sizeof infinite);
        }
    const StepResult s = trainer.step(0);
    CHECK(!s.updated);
    CHECK(!std::isfinite(s.grad_norm));
    const std::vector<float> after = trainer.gather(0, StateKind::m);
    CHECK(std::all_of(after.begin(), after.end(), [](float x) { return x == 0; }));
    const bool alike = world().all(!s.updated);
    CHECK(alike);
    if (world().size() > 1) CHECK(trainer.gather(0, StateKind::master) == before);
}

TEST_CASE("fp16: an overflow writes nothing, on all ranks alike; the same step at a smaller scale updates") {
    Config c = world().size() == 4 ? on_grid(tiny(true), 1, 2, 2, 1) : tiny(true);
    c.train.precision = Precision::fp16;
    Trainer trainer(world(), c);
    const auto everything = [&] {
        std::vector<std::vector<float>> all;
        for (std::size_t p = 0; p < trainer.program().parameters.size(); ++p)
            for (const auto what : {StateKind::weight, StateKind::master, StateKind::m, StateKind::v})
                all.push_back(trainer.gather(static_cast<int>(p), what));
        return all;
    };
    const auto before = everything();
    trainer.loss_scale = 0x1p40;
    const StepResult over = trainer.step(0);
    CHECK(std::isfinite(over.loss));
    CHECK(!std::isfinite(over.grad_norm));
    const bool nobody = world().all(!over.updated);
    CHECK(nobody);
    CHECK(everything() == before);
    trainer.loss_scale = 1024;
    const StepResult fits = trainer.step(0);
    CHECK(fits.loss == over.loss);
    CHECK(std::isfinite(fits.grad_norm));
    const bool all = world().all(fits.updated);
    CHECK(all);
    const auto after = everything();
    if (world().rank() == 0) CHECK(after != before);
}

TEST_CASE("a trace holds every op once, inside the step") {
    Trainer trainer(world(), world().size() == 4 ? on_grid(tiny(false), 1, 2, 2, 1) : tiny(false));
    const double begin = now();
    const StepResult s = trainer.step(0, true);
    const double end = now();
    CHECK(s.events.size() > 100);
    std::vector<std::int32_t> ops;
    for (const OpEvent& e : s.events) {
        CHECK(e.begin <= e.end);
        CHECK(e.begin >= begin);
        CHECK(e.end <= end);
        ops.push_back(e.op);
    }
    std::sort(ops.begin(), ops.end());
    CHECK(std::adjacent_find(ops.begin(), ops.end()) == ops.end());
    CHECK(label(trainer.program(), trainer.program().ops[0]).starts_with("S "));
    const auto top = std::max_element(s.timeline[0].begin(), s.timeline[0].end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    CHECK(top->books == trainer.program().peaks[0].books);
    CHECK(s.timeline[0].size() > 20);
    CHECK(s.timeline[0].back().bytes == s.timeline[0].back().books[0] + s.timeline[0].back().books[2] + s.timeline[0].back().books[4]);
    const StepResult untraced = trainer.step(1);
    CHECK(untraced.events.empty());
    CHECK(untraced.timeline[0].empty());
    StepInputs events_alone = trainer.inputs(2, true);
    events_alone.trace_memory = false;
    const StepResult without_memory = trainer.run(events_alone);
    CHECK(without_memory.events.size() == s.events.size());
    CHECK(without_memory.timeline[0].empty());
}

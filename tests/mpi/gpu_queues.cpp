// A step whose kernels and copies run on a device's queues, on the emulated GPU, whose streams run in any order that is allowed: what it computes and
// tells is what the CPU does, though memory is used again and again.
#include "mpi_main.hpp"

#include "compile/lay_out.hpp"
#include "cpu/device.hpp"
#include "cuda/device.hpp"
#include "runtime/addresses.hpp"
#include "runtime/executor.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

namespace quadrille::test {

namespace {

constexpr std::int64_t rows = 4, cols = 750, count = rows * cols, microbatches = 5;

TensorType in_tier(std::initializer_list<std::int64_t> shape, DType dtype, Tier tier) {
    TensorType t(shape, dtype, {}, Book::buffers);
    t.tier = tier;
    return t;
}

// Masks are loaded and counted on the device, microbatch by microbatch, and x goes to the device and back to be doubled each time. Loads, copies and
// kernels take turns, and what they leave is overwritten by the next ones.
struct Steps {
    Program p{std::make_shared<Tables>(Grid())};
    TensorId x, y;

    Steps() {
        x = p.declare("x", in_tier({1, rows, cols}, DType::f32, Tier::host));
        p.buffers.back().persistent = true;
        Attributes load, twice, count_all, sum;
        count_all.signature = "bs->";
        sum.signature = ",->";
        load.input = Input::mask;
        load.types = {p.tables->intern(in_tier({rows, cols}, DType::u8, Tier::host))};
        twice.factor = 2;
        TensorId total = -1;
        y = x;
        for (int m = 0; m < microbatches; ++m) {
            const Where where{Part::step, 0, m, -1};
            const TensorId mask = p.to_tier(p.add(Kind::load, {}, load, where)[0], Tier::device, where, {});
            const TensorId counted = p.add(Kind::count, {mask}, count_all, where)[0];
            total = m == 0 ? counted : p.add(Kind::add, {total, counted}, sum, where)[0];
            const TensorId doubled = p.add(Kind::scale, {p.to_tier(y, Tier::device, where, {})}, twice, where)[0];
            y = p.to_tier(doubled, Tier::host, where, {});
        }
        p.tokens = p.to_tier(total, Tier::host, {Part::step, 0, -1, -1}, {});
        p.buffers[static_cast<std::size_t>(p.tensor(y).buffer)].persistent = true;
        let_fly();
        lay_out(p, {});
    }

    // Each copy until what it makes is first read.
    void let_fly() {
        const auto size = static_cast<std::int32_t>(p.ops.size());
        for (std::int32_t i = 0; i < size; ++i) {
            Op& op = p.ops[static_cast<std::size_t>(i)];
            if (op.kind != Kind::move) continue;
            const auto reads = [&](std::int32_t reader) {
                const auto in = p.inputs(p.ops[static_cast<std::size_t>(reader)]);
                return std::find(in.begin(), in.end(), p.outputs(op)[0]) != in.end();
            };
            op.until = i + 1;
            while (op.until < size && !reads(op.until)) ++op.until;
        }
    }
};

struct Outcome {
    StepResult result;
    std::vector<float> y;
};

Outcome run(Device& device, const Program& p, TensorId x, TensorId y) {
    Arena arena(device, {p.peaks[0].arena, p.peaks[1].arena, 0}, "the test", 0, 1);
    Engine engine(world());
    Executor executor(p, world(), engine, arena, {});
    const auto floats = [&](TensorId t) { return reinterpret_cast<float*>(arena.data(Tier::host) + range_of(p, {}, t).begin); };
    StepInputs inputs;
    inputs.trace = true;
    inputs.load = [](const LoadRequest& r) {
        auto* const to = static_cast<std::uint8_t*>(r.to);
        for (std::int64_t i = 0; i < count; ++i) to[i] = i % (r.microbatch + 2) == 0;
    };
    Outcome out;
    for (int step = 0; step < 2; ++step) {
        std::iota(floats(x), floats(x) + count, 0.0f);
        out.result = executor.run(inputs);
    }
    out.y.assign(floats(y), floats(y) + count);
    return out;
}

std::int64_t counted() {
    std::int64_t n = 0;
    for (std::int64_t m = 0; m < microbatches; ++m) n += (count + m + 1) / (m + 2);
    return n;
}

}  // namespace

TEST_CASE("a step on a device with queues: the CPU's results, each op once and in order, and times that add up") {
    const Steps s;
    CpuDevice cpu(1);
    const Outcome here = run(cpu, s.p, s.x, s.y);
    CHECK(here.result.tokens == counted());
    CHECK(here.y[7] == 7.0f * 32);
    for (int repeat = 0; repeat < 40; ++repeat) {
        CudaDevice gpu(0);
        const Outcome there = run(gpu, s.p, s.x, s.y);
        REQUIRE(there.y == here.y);
        REQUIRE(there.result.tokens == here.result.tokens);
        CHECK(there.result.moved_bytes == here.result.moved_bytes);
        CHECK(there.result.events.size() == here.result.events.size());
        CHECK(std::accumulate(there.result.time.begin(), there.result.time.end(), 0.0) == doctest::Approx(there.result.seconds));
        CHECK(at(there.result.time, Category::compute) > 0);
        double last = 0;
        for (const OpEvent& e : there.result.events) {
            if (e.queue != 0 || s.p.ops[static_cast<std::size_t>(e.op)].kind == Kind::load) continue;
            CHECK(e.begin >= last - 2e-6);
            CHECK(e.end >= e.begin - 2e-6);
            last = e.end;
        }
    }
}

TEST_CASE("what the calling thread fills must be memory that it reaches") {
    Program p(std::make_shared<Tables>(Grid()));
    const TensorId far = p.declare("x", in_tier({count}, DType::f32, Tier::device));
    p.to_tier(far, Tier::host, {Part::step, 0, -1, -1}, {});
    Attributes load;
    load.input = Input::mask;
    load.types = {p.tables->intern(in_tier({rows, cols}, DType::u8, Tier::device))};
    p.add(Kind::load, {}, load, {Part::step, 0, 0, -1});
    for (Buffer& b : p.buffers) b.persistent = true;
    lay_out(p, {});
    CudaDevice gpu(0);
    Arena arena(gpu, {p.peaks[0].arena, p.peaks[1].arena, 0}, "the test", 0, 1);
    Engine engine(world());
    CHECK_THROWS(Executor(p, world(), engine, arena, {}));
}

}  // namespace quadrille::test

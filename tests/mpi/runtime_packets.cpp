// Compressed gradients on ranks: what must not change the numbers does not, losses stay near those without compression, and a step that does
// not count leaves residuals as they were.
#include "mpi_main.hpp"
#include "runtime/addresses.hpp"
#include "runtime_train.hpp"
#include "sampled.hpp"

#include <cmath>
#include <cstring>

using namespace quadrille;
using namespace quadrille::test;

namespace {

CompressionConfig packed(CompressionMethod method, bool feedback = true) { return {method, 0.05, 4, feedback, {"embedding", "head"}}; }

struct Split { int dp, tp, pp, sp, shard; };
std::vector<Split> splits() {
    switch (world().size()) {
        case 2: return {{2, 1, 1, 1, 0}, {2, 1, 1, 1, 1}};
        case 4: return {{4, 1, 1, 1, 0}, {4, 1, 1, 1, 2}, {2, 2, 1, 1, 0}, {2, 1, 2, 1, 0}, {2, 1, 1, 2, 0}};
        default: return {};
    }
}
// Over tp copies of a parameter must be sent alike. In a sample some splits take one pair of methods, some the other.
std::vector<CompressionMethod> methods_on(const Split& s) {
    if (s.tp > 1) return {CompressionMethod::bf16};
    return sampled(std::vector{CompressionMethod::bf16, CompressionMethod::fp16, CompressionMethod::topk, CompressionMethod::qsgd}, 2,
                   s.shard > 0 || s.sp > 1);
}
Config on_split(const Config& c, const Split& s) {
    Config out = on_grid(c, s.dp, s.tp, s.pp, s.sp);
    out.sharding.shard_size = s.shard;
    return out;
}

// Three steps, in poisoned memory.
Trained trained(const Config& c) {
    const Trained t = Trainer(world(), c, 1, true).train(3);
    CHECK(t.replicas_equal);
    for (const StepResult& s : t.steps)
        for (std::size_t a = 0; a < t.wire_axes.size(); ++a)
            CHECK(s.sent_bytes[a] == (t.wire.contains(t.wire_axes[a]) ? t.wire.at(t.wire_axes[a]) : 0));
    return t;
}

void check_bits(const Trained& a, const Trained& b) {
    for (std::size_t k = 0; k < a.steps.size(); ++k) {
        CHECK(a.steps[k].loss == b.steps[k].loss);
        CHECK(a.steps[k].grad_norm == b.steps[k].grad_norm);
        CHECK(a.steps[k].residual2 == b.steps[k].residual2);
    }
    CHECK(a.parameters == b.parameters);
}

// The bytes of this rank's residuals.
std::vector<float> residuals(Trainer& t) {
    std::vector<float> all;
    const Program& p = t.program();
    for (std::size_t u = 0; u < p.flats.size(); ++u) {
        const TensorId r = p.initial_state(StateKind::residual, static_cast<std::int32_t>(u));
        if (r < 0) continue;
        const ByteRange at = range_of(p, p.grid().coordinate(world().rank()), r);
        all.resize(all.size() + static_cast<std::size_t>((at.end - at.begin) / 4));
        std::memcpy(all.data() + all.size() - static_cast<std::size_t>((at.end - at.begin) / 4), t.arena().data(Tier::device) + at.begin,
                    static_cast<std::size_t>(at.end - at.begin));
    }
    return all;
}

double squares(const std::vector<float>& x) {
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * v;
    return sum;
}

}  // namespace

TEST_CASE("stages, buckets, overlap and repeats change no bit") {
    for (const Split& split : splits())
        for (const CompressionMethod method : methods_on(split))
            for (const bool feedback : {true, false}) {
                CAPTURE(split.dp);
                CAPTURE(split.tp);
                CAPTURE(split.shard);
                CAPTURE(static_cast<int>(method));
                CAPTURE(feedback);
                Config c = on_split(tiny(split.pp > 1), split);
                c.compression = packed(method, feedback);
                const Trained usual = trained(c);
                check_bits(trained(c), usual);
                c.sharding.zero_stage = 1;
                c.comm.bucket_size = 1;
                check_bits(trained(c), usual);
                c.comm.overlap = false;
                check_bits(trained(c), usual);
                c.sharding.zero_stage = 2;
                const Trained two = trained(c);
                c.comm.overlap = true;
                c.comm.bucket_size = 6000;
                c.sharding.zero_stage = 3;
                check_bits(trained(c), two);
            }
}

TEST_CASE("the first loss is that without compression, later ones are near it") {
    for (const Split& split : splits())
        for (const CompressionMethod method : methods_on(split))
            for (const Precision precision : {Precision::fp32, Precision::bf16}) {
                CAPTURE(static_cast<int>(method));
                Config c = on_split(tiny(true), split);
                c.train.precision = c.train.gradient_dtype = precision;
                const Trained whole = trained(c);
                c.compression = packed(method);
                const Trained lossy = trained(c);
                CHECK(lossy.steps[0].loss == whole.steps[0].loss);
                for (std::size_t k = 1; k < whole.steps.size(); ++k) CHECK(std::abs(lossy.steps[k].loss - whole.steps[k].loss) < 0.02);
                const bool exact = precision == Precision::fp32 && (method == CompressionMethod::bf16 || method == CompressionMethod::fp16);
                if (exact) CHECK(lossy.steps[0].grad_norm == doctest::Approx(whole.steps[0].grad_norm).epsilon(2e-3));
            }
}

TEST_CASE("the squares of the residuals are told, and grow from nothing") {
    for (const Split& split : splits())
        for (const CompressionMethod method : methods_on(split)) {
            Config c = on_split(tiny(false), split);
            c.compression = packed(method);
            Trainer t(world(), c);
            CHECK(squares(residuals(t)) == 0);
            for (int k = 0; k < 2; ++k) {
                const StepResult s = t.step(k);
                CHECK(s.residual2 > 0);
                CHECK(s.residual2 == doctest::Approx(squares(residuals(t))).epsilon(1e-12));
            }
        }
}

TEST_CASE("a step whose gradients overflow is skipped by all, and leaves residuals as they were") {
    for (const Split& split : splits())
        for (const CompressionMethod method : methods_on(split))
            for (const int stage : {0, 2}) {
                CAPTURE(static_cast<int>(method));
                CAPTURE(stage);
                Config c = on_split(tiny(true), split);
                c.sharding.zero_stage = stage;
                c.train.precision = Precision::fp16;
                c.compression = packed(method);
                Trainer trainer(world(), c), other(world(), c);
                CHECK(trainer.step(0).updated);
                other.step(0);
                const std::vector<float> before = residuals(trainer);
                CHECK(squares(before) > 0);
                trainer.loss_scale = 0x1p40;
                const StepResult over = trainer.step(1);
                CHECK(!std::isfinite(over.grad_norm));
                const bool nobody = world().all(!over.updated);
                CHECK(nobody);
                CHECK(residuals(trainer) == before);
                // As if it had not been.
                trainer.loss_scale = 1024;
                const StepResult again = trainer.step(1), straight = other.step(1);
                CHECK(again.loss == straight.loss);
                CHECK(again.grad_norm == straight.grad_norm);
                CHECK(again.residual2 == straight.residual2);
            }
}

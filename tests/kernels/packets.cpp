// Packed gradients against float64: what each method may lose, that nothing is lost beside what is kept as unsent, and that what is not finite is
// seen.
#include "base/random.hpp"
#include "device.hpp"
#include "reference.hpp"

#include <fmt/core.h>

#include <numeric>
#include <string>

using namespace quadrille;
using namespace quadrille::test;

namespace {

constexpr std::int64_t block = packing_block;

std::vector<Packing> methods() {
    return {{PackingMethod::bf16, 0, 0}, {PackingMethod::fp16, 0, 0},    {PackingMethod::topk, 0.01, 0}, {PackingMethod::topk, 1, 0},
            {PackingMethod::qsgd, 0, 2}, {PackingMethod::qsgd, 0, 3},    {PackingMethod::qsgd, 0, 4},    {PackingMethod::qsgd, 0, 7},
            {PackingMethod::qsgd, 0, 8}, {PackingMethod::topk, 0.3, 0}};
}
std::string text(const Packing& p) { return fmt::format("{} {} {}", name_of(p.method), p.ratio, p.bits); }

struct Packed {
    std::vector<unsigned char> packets;
    Stored unsent;
};

Packed pack(const Packing& packing, const Stored& g, const Stored* residual, std::int64_t slices = 1, std::uint64_t key = 1, float scale = 1) {
    Compress c;
    c.packing = packing;
    c.slices = slices;
    c.count = g.size() / slices;
    c.gradient = g.data();
    c.type = g.t;
    c.key = key;
    c.scale = scale;
    Packed out;
    out.packets.resize(static_cast<std::size_t>(slices * packet_bytes(packing, c.count)));
    if (residual) {
        out.unsent = garbage(g.size(), DType::f32);
        c.residual = reinterpret_cast<const float*>(residual->data());
        c.unsent = reinterpret_cast<float*>(out.unsent.data());
    }
    kernels()->compress(c, reinterpret_cast<std::byte*>(out.packets.data()));
    return out;
}

Stored unpack(const Packing& packing, const std::vector<unsigned char>& packets, std::int64_t n, std::int64_t count, DType type = DType::f32) {
    REQUIRE(static_cast<std::int64_t>(packets.size()) == n * packet_bytes(packing, count));
    Stored sum = garbage(count, type);
    kernels()->decompress(packing, reinterpret_cast<const std::byte*>(packets.data()), n, sum.data(), type, count);
    return sum;
}

double top_of(const Values& x, std::int64_t first, std::int64_t n) {
    double top = 0;
    for (std::int64_t i = first; i < std::min<std::int64_t>(first + n, std::ssize(x)); ++i)
        top = std::max(top, std::abs(x[static_cast<std::size_t>(i)]));
    return top;
}

// What a method may lose of element i.
double bound(const Packing& p, const Values& x, std::int64_t i) {
    const double v = std::abs(x[static_cast<std::size_t>(i)]), top = top_of(x, i / block * block, block);
    switch (p.method) {
        case PackingMethod::bf16: return v * 0x1p-8;
        case PackingMethod::fp16: return v * 0x1p-11 + top * 0x1p-38;
        case PackingMethod::qsgd: return top / ((1 << (p.bits - 1)) - 1) * (1 + 1e-6);
        default: return v;
    }
}

}  // namespace

TEST_CASE("bytes of a packet: by method and count alone") {
    CHECK(packet_bytes({PackingMethod::bf16, 0, 0}, 3 * block) == 6 * block);
    CHECK(packet_bytes({PackingMethod::fp16, 0, 0}, 3 * block) == 6 * block + 12);
    CHECK(packet_bytes({PackingMethod::qsgd, 0, 4}, 3 * block) == 3 * block / 2 + 12);
    CHECK(packet_bytes({PackingMethod::qsgd, 0, 3}, block) == 3 * block / 8 + 4);
    CHECK(packet_bytes({PackingMethod::topk, 0.01, 0}, topk_block) == 6 * 656);  // ceil(655.36)
    CHECK(packet_bytes({PackingMethod::topk, 0.01, 0}, topk_block + block) == 6 * (656 + 11));
    CHECK(packet_bytes({PackingMethod::topk, 1e-9, 0}, block) == 6);
    CHECK(packet_bytes({PackingMethod::topk, 0.01, 0}, 0) == 0);
}

TEST_CASE("what is lost keeps to the method's bound, and is kept as unsent") {
    for (const Packing& p : methods())
        for (const DType t : storage_types)
            for (const std::int64_t count : {block, 3 * block, topk_block + 2 * block}) {
                CAPTURE(text(p));
                CAPTURE(name_of(t));
                CAPTURE(count);
                const Operand g = operand(count, t, 7, 1e-3), r = operand(count, DType::f32, 8, 1e-3);
                Values x = g.x;
                for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(x[i]) + static_cast<float>(r.x[i]);
                for (const bool feedback : {false, true}) {
                    const Values& want = feedback ? x : g.x;
                    const Packed made = pack(p, g.stored, feedback ? &r.stored : nullptr);
                    const Values got = values(unpack(p, made.packets, 1, count)), unsent = values(made.unsent);
                    double worst = 0, kept = 0;
                    for (std::int64_t i = 0; i < count; ++i) {
                        const auto k = static_cast<std::size_t>(i);
                        worst = std::max(worst, std::abs(got[k] - want[k]) / (bound(p, want, i) * (1 + 1e-6) + 1e-30));
                        if (feedback) kept = std::max(kept, std::abs(got[k] + unsent[k] - want[k]) / (std::abs(got[k]) + std::abs(want[k]) + 1e-30));
                    }
                    CHECK(worst <= 1);
                    CHECK(kept <= 1e-6);
                }
            }
}

TEST_CASE("topk sends the largest of each block, of equals the first, and nothing else") {
    const std::int64_t count = topk_block + block;
    const Packing p{PackingMethod::topk, 0.003, 0};
    Operand g = operand(count, DType::bf16, 3);  // bf16 has many equals
    const Values got = values(unpack(p, pack(p, g.stored, nullptr).packets, 1, count));
    for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, topk_block}, {topk_block, block}}) {
        std::vector<std::int64_t> order(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), first);
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            return std::abs(g.x[static_cast<std::size_t>(a)]) > std::abs(g.x[static_cast<std::size_t>(b)]);
        });
        for (std::int64_t i = 0; i < n; ++i) {
            const auto k = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
            if (got[k] != (i < topk_count(p, n) ? g.x[k] : 0.0)) FAIL_CHECK("element " << k << " is " << got[k] << " of " << g.x[k]);
        }
    }
}

TEST_CASE("qsgd rounds so that the mean is right, and by key and element alone") {
    const Operand g = operand(2 * block, DType::f32, 5);
    for (const int bits : {2, 4}) {
        const Packing p{PackingMethod::qsgd, 0, bits};
        Values mean(g.x.size(), 0.0);
        constexpr int draws = 2000;
        for (int k = 0; k < draws; ++k) {
            const Values y = values(unpack(p, pack(p, g.stored, nullptr, 1, static_cast<std::uint64_t>(k)).packets, 1, 2 * block));
            for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += y[i] / draws;
        }
        const double step = top_of(g.x, 0, 2 * block) / ((1 << (bits - 1)) - 1);
        CHECK(error(mean, g.x, 0, 5 * step / 2 / std::sqrt(draws)) < 1);  // 5 deviations of the mean of what falls on one of two levels
        CHECK(pack(p, g.stored, nullptr, 1, 3).packets == pack(p, g.stored, nullptr, 1, 3).packets);
        CHECK(pack(p, g.stored, nullptr, 1, 3).packets != pack(p, g.stored, nullptr, 1, 4).packets);
    }
}

TEST_CASE("slices lie one behind the other") {
    const Operand g = operand(4 * block, DType::f32, 9);
    for (const Packing& p : methods()) {
        if (p.method == PackingMethod::topk) continue;  // its blocks are longer
        CAPTURE(text(p));
        CHECK(pack(p, g.stored, nullptr, 1).packets == pack(p, g.stored, nullptr, 4).packets);
    }
}

TEST_CASE("a sum is fp32, in the order of the packets, rounded once") {
    const std::int64_t count = topk_block + block, n = 5;
    for (const Packing& p : methods())
        for (const DType t : storage_types) {
            CAPTURE(text(p));
            std::vector<unsigned char> packets;
            std::vector<float> want(static_cast<std::size_t>(count), 0.0f);
            for (std::int64_t k = 0; k < n; ++k) {
                const auto one = pack(p, operand(count, DType::f32, static_cast<unsigned>(k)).stored, nullptr).packets;
                const Values x = values(unpack(p, one, 1, count));
                for (std::size_t i = 0; i < want.size(); ++i) want[i] += static_cast<float>(x[i]);
                packets.insert(packets.end(), one.begin(), one.end());
            }
            CHECK(unpack(p, packets, n, count, t).bytes == stored(Values(want.begin(), want.end()), t).bytes);
        }
}

TEST_CASE("the loss scale: a residual does not depend on it") {
    const Operand g = operand(2 * block, DType::f32, 2, 1e-4), r = operand(2 * block, DType::f32, 3, 1e-4);
    Values scaled = g.x;
    for (double& x : scaled) x *= 4096;
    for (const Packing& p : methods()) {
        CAPTURE(text(p));
        const Packed one = pack(p, g.stored, &r.stored), big = pack(p, stored(scaled, DType::f32), &r.stored, 1, 1, 4096);
        CHECK(one.unsent.bytes == big.unsent.bytes);
    }
}

TEST_CASE("unsent may take the gradient's place") {
    const Operand g = operand(3 * block, DType::f32, 4), r = operand(3 * block, DType::f32, 5);
    for (const Packing& p : methods()) {
        CAPTURE(text(p));
        const Packed apart = pack(p, g.stored, &r.stored);
        Stored place = g.stored;
        Compress c;
        c.packing = p;
        c.count = 3 * block;
        c.gradient = place.data();
        c.residual = reinterpret_cast<const float*>(r.stored.data());
        c.unsent = reinterpret_cast<float*>(place.data());
        c.key = 1;
        std::vector<unsigned char> packets(apart.packets.size());
        kernels()->compress(c, reinterpret_cast<std::byte*>(packets.data()));
        CHECK(packets == apart.packets);
        CHECK(place.bytes == apart.unsent.bytes);
    }
}

TEST_CASE("a residual becomes what was not sent where the norm is finite, and else stays; its squares are summed") {
    const std::int64_t count = 3 * block;
    const Operand before = operand(count, DType::f32, 8), unsent = operand(count, DType::f32, 9);
    for (const double norm2 : {2.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
        Stored residual = before.stored;
        const std::vector<double> norm = {norm2};
        std::vector<double> squares(1);
        Workspace workspace(kernels()->sum_squares_workspace(count, 1));
        auto* const kept = reinterpret_cast<float*>(residual.data());
        kernels()->retain(kept, reinterpret_cast<const float*>(unsent.data()), count, norm.data(), squares.data(), workspace.data());
        const Operand& want = std::isfinite(norm2) ? unsent : before;
        CHECK(residual.bytes == want.stored.bytes);
        CHECK(squares[0] == doctest::Approx(dot(want.x, want.x)).epsilon(1e-13));
    }
}

TEST_CASE("what is not finite is seen in the sum, wherever it stands") {
    const std::int64_t count = topk_block + 2 * block;
    for (const Packing& p : methods())
        for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}})
            for (const std::int64_t at : {std::int64_t{0}, std::int64_t{5000}, topk_block + block + 17, count - 1}) {
                CAPTURE(text(p));
                CAPTURE(bad);
                CAPTURE(at);
                Values x = normal(count, 6);
                x[static_cast<std::size_t>(at)] = bad;
                const Stored g = stored(x, DType::f32);
                std::vector<unsigned char> packets = pack(p, operand(count, DType::f32, 1).stored, nullptr).packets;
                const auto second = pack(p, g, nullptr).packets;
                packets.insert(packets.end(), second.begin(), second.end());
                CHECK(!std::isfinite(values(unpack(p, packets, 2, count))[static_cast<std::size_t>(at)]));
            }
}

TEST_CASE("zeroes, and the smallest and largest numbers") {
    for (const Packing& p : methods()) {
        CAPTURE(text(p));
        const Values none(static_cast<std::size_t>(block), 0.0);
        CHECK(values(unpack(p, pack(p, stored(none, DType::f32), nullptr).packets, 1, block)) == none);
        for (const double size : {1e-44, 1e-38, 1e37}) {
            Values x = normal(block, 3);
            for (double& v : x) v = static_cast<float>(v * size);
            const Values y = values(unpack(p, pack(p, stored(x, DType::f32), nullptr).packets, 1, block));
            const double top = top_of(x, 0, block);
            CHECK(std::all_of(y.begin(), y.end(), [&](double v) { return std::isfinite(v) && std::abs(v) <= top * 1.01 + 1e-44; }));
        }
    }
}

TEST_CASE("the same bits on any number of threads") {
    const std::int64_t count = 2 * topk_block + block;
    const Operand g = operand(2 * count, DType::f32, 11), r = operand(2 * count, DType::f32, 12);
    for (const Packing& p : methods()) {
        CAPTURE(text(p));
        CHECK(same_bits_on_any_threads([&] {
            Packed made = pack(p, g.stored, &r.stored, 2);
            const Stored sum = unpack(p, made.packets, 2, count);
            made.packets.insert(made.packets.end(), made.unsent.bytes.begin(), made.unsent.bytes.end());
            made.packets.insert(made.packets.end(), sum.bytes.begin(), sum.bytes.end());
            return made.packets;
        }));
    }
}

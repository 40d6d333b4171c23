// What lives in another tier: how much of it, and how little of it is on the device at a time.
#include "compile_fixture.hpp"
#include "plan/plan.hpp"

#include <doctest.h>

#include <algorithm>

using namespace quadrille;
using namespace quadrille::test;

namespace {

constexpr std::int64_t layers = 8;

Config deep() {
    Config c = wide(small_gpt(layers));
    c.model.position_embedding = PositionEmbedding::none;
    c.model.tie_word_embeddings = false;
    return c;
}

Program compiled(const Config& c) {
    Compiled all = compile(c, Purpose::training, {});
    REQUIRE(verify(all.programs, compile(serial(c), Purpose::training, {}).programs[0]).empty());
    return std::move(all.programs[0]);
}

// Bytes of these books on a tier at the op of the step at which they are most, and the largest unit's.
std::int64_t most(const Program& p, Tier tier, std::initializer_list<Book> books) {
    std::vector<std::int64_t> in_use(p.ops.size() + 1, 0);
    for (const Buffer& b : p.buffers) {
        if (b.tier != tier || std::find(books.begin(), books.end(), b.book) == books.end() || b.first < 0) continue;
        in_use[static_cast<std::size_t>(b.first)] += b.bytes;
        in_use[static_cast<std::size_t>(b.last) + 1] -= b.bytes;
    }
    std::int64_t now = 0, most = 0;
    for (const std::int64_t change : in_use) most = std::max(most, now += change);
    return most;
}

std::int64_t elements(const Program& p) {
    std::int64_t all = 0;
    for (const Flat& f : p.flats) all += f.length;
    return all;
}

std::int64_t largest(const Program& p) {
    return std::max_element(p.flats.begin(), p.flats.end(), [](const Flat& a, const Flat& b) { return a.length < b.length; })->length;
}

}  // namespace

TEST_CASE("model states by tier: 4 bytes of weights, 8 of moments and 4 of gradients a parameter, wherever they live") {
    Config c = deep();
    c.offload.nvme_path = "/nowhere";
    const auto all = {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme};
    for (const OffloadTo optimizer : all)
        for (const OffloadTo parameters : all)
            for (const OffloadTo gradients : {OffloadTo::none, OffloadTo::cpu}) {
                c.offload.optimizer = optimizer;
                c.offload.parameters = parameters;
                c.offload.gradients = gradients;
                const Plan plan = make_plan(c, {}, {});
                const std::int64_t n = elements(compiled(c));
                CHECK(plan.programs[0].states.weights == 4 * n);
                CHECK(plan.programs[0].states.moments == 8 * n);
                CHECK(plan.programs[0].states.gradients == 4 * n);
                if (optimizer == OffloadTo::nvme && parameters == OffloadTo::nvme)
                    CHECK(plan.programs[0].peaks[static_cast<std::size_t>(Tier::nvme)].arena == 12 * n);
            }
}

TEST_CASE("gradients that live in host memory leave the device unit by unit, in the last microbatch too") {
    Config c = deep();
    for (const auto& [dp, stage] : {std::pair{1, 0}, {2, 0}, {2, 1}, {2, 2}}) {
        Config on = on_grid(c, dp, 1, 1, 1);
        on.sharding.zero_stage = stage;
        on.comm.bucket_size = 1;
        on.offload.gradients = OffloadTo::cpu;
        for (const OffloadTo optimizer : {OffloadTo::none, OffloadTo::cpu}) {
            on.offload.optimizer = optimizer;
            const Program p = compiled(on);
            const std::int64_t there = most(p, Tier::device, {Book::gradients, Book::buffers});
            CAPTURE(on.grid.dp);
            CAPTURE(on.sharding.zero_stage);
            CHECK(there <= 5 * 4 * largest(p));
            CHECK(there < 4 * elements(p) * 3 / 4);
        }
    }
}

TEST_CASE("parameters that live elsewhere are on the device two units at a time") {
    for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
        Config c = deep();
        c.offload.parameters = to;
        c.offload.optimizer = OffloadTo::cpu;
        const Program p = compiled(c);
        CHECK(p.peaks[0].books[static_cast<std::size_t>(Book::weights)] == 0);
        CHECK(most(p, Tier::device, {Book::weights, Book::buffers}) <= 3 * 4 * largest(p));
    }
}

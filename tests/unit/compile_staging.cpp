// Programs that reach beyond the device through host memory: what is copied, and what they take of time and memory beside direct ones.
#include "compile_fixture.hpp"
#include "ir/table.hpp"

#include <doctest.h>

#include <algorithm>
#include <map>

using namespace quadrille;
using namespace quadrille::test;

namespace {

std::vector<Config> some_configs() {
    std::vector<Config> all = {on_grid(wide(small_gpt()), 2, 2, 1, 2), on_grid(small_llama(4), 1, 2, 2, 1)};
    for (const int stage : {1, 2, 3}) {
        Config c = on_grid(wide(small_gpt(4)), 2, 1, 1, 1);
        c.sharding.zero_stage = stage;
        c.comm.bucket_size = 40000;
        all.push_back(c);
    }
    Config hybrid = on_grid(wide(small_gpt()), 4, 1, 1, 1);
    hybrid.sharding.zero_stage = 2;
    hybrid.sharding.shard_size = 2;
    all.push_back(hybrid);
    return all;
}

std::vector<Program> programs(const Config& c, bool through_host) {
    return compile(c, Purpose::training, through_host ? staged_workspace() : Workspace(some_workspace)).programs;
}

// For each move between ranks whose result is kept for this step alone: how many ops that stay on their rank are issued before somebody waits for it.
std::vector<std::int64_t> patience(const Program& p) {
    std::vector<std::int64_t> within = {0}, out;
    const auto stays = [](const Op& op) { return op.queue == Queue::compute; };
    for (const Op& op : p.ops) within.push_back(within.back() + stays(op));
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
        const Op& op = p.ops[i];
        const auto results = p.outputs(op);
        const bool kept = std::any_of(results.begin(), results.end(), [&p](TensorId t) { return p.tells(t); });
        if (!moves_between_ranks(op) || op.part == Part::step || kept) continue;
        // Another move may be issued behind it: the wait is for the last of them.
        std::int64_t wait = within[op.until < 0 ? i + 1 : static_cast<std::size_t>(op.until)];
        if (op.until < 0)
            for (std::size_t k = i + 1; k < p.ops.size() && !stays(p.ops[k]); ++k) wait = within[k + 1];
        out.push_back(wait);
    }
    return out;
}

}  // namespace

TEST_CASE("nobody waits for a layer's moves earlier than without") {
    for (const Config& c : some_configs()) {
        const auto direct = programs(c, false), staged = programs(c, true);
        for (std::size_t pp = 0; pp < direct.size(); ++pp) {
            const auto before = patience(direct[pp]), now = patience(staged[pp]);
            REQUIRE(now.size() == before.size());
            for (std::size_t k = 0; k < now.size(); ++k) CHECK(now[k] >= before[k]);
        }
    }
}

TEST_CASE("the device holds no more than without, host memory no more than what is on its way") {
    for (const Config& c : some_configs()) {
        const auto direct = programs(c, false), staged = programs(c, true);
        for (std::size_t pp = 0; pp < direct.size(); ++pp) {
            const auto held = [](const Program& p, Tier t) {
                const TierPeak& peak = p.peaks[static_cast<std::size_t>(t)];
                return peak.arena - peak.packing;
            };
            CHECK(held(staged[pp], Tier::device) <= held(direct[pp], Tier::device) + 16);  // scalars on their way
            CHECK(held(direct[pp], Tier::host) == 0);
            const auto& host = staged[pp].peaks[static_cast<std::size_t>(Tier::host)];
            CHECK(host.books[static_cast<std::size_t>(Book::buffers)] == held(staged[pp], Tier::host));
            CHECK(held(staged[pp], Tier::host) > 0);
        }
    }
}

TEST_CASE("a scatter's copies may be under way as long as it, and it begins to leave as soon as its gradient is whole") {
    Config c = on_grid(wide(small_gpt(4)), 2, 1, 1, 1);
    c.sharding.zero_stage = 2;
    c.comm.bucket_size = 1;
    const Program p = programs(c, true)[0];
    std::map<TensorId, std::size_t> maker;
    std::int64_t scatters = 0;
    for (std::size_t i = 0; i + 1 < p.ops.size(); ++i) {
        const Op &op = p.ops[i], &in = p.ops[i + 1];
        for (const TensorId t : p.outputs(op)) maker[t] = i;
        if (op.queue != Queue::collective || p.type(p.inputs(op)[0]).dims != 1 || change(p, op).pair != Pair::reduce_scatter) continue;
        ++scatters;
        const std::size_t left = maker.at(p.inputs(op)[0]);
        const Op& out = p.ops[left];
        CHECK(out.queue == Queue::copy_out);
        CHECK(maker.at(p.inputs(out)[0]) == left - 1);
        CHECK((in.queue == Queue::copy_in && p.inputs(in)[0] == p.outputs(op)[0]));
        CHECK((op.until > static_cast<std::int32_t>(i) + 1 && out.until == op.until && in.until >= op.until));
    }
    CHECK(scatters == 28);
}

TEST_CASE("what a ring sends on stays in host memory: keys and values are copied out once, and in at each turn") {
    std::vector<std::int64_t> out, in;
    for (const int sp : {2, 3, 6}) {
        const Program p = programs(on_grid(small_gpt(), 1, 1, 1, sp), true)[0];
        const auto forward = [&p](Queue q) {
            return std::count_if(p.ops.begin(), p.ops.end(), [&](const Op& op) {
                return op.queue == q && op.part == Part::forward && p.tables->name(op.unit).starts_with("layers.");
            });
        };
        out.push_back(forward(Queue::copy_out));
        in.push_back(forward(Queue::copy_in) / (sp - 1));
    }
    CHECK((out[0] > 0 && out[1] == out[0] && out[2] == out[0]));
    CHECK((in[0] == out[0] && in[1] == out[0] && in[2] == out[0]));
}

TEST_CASE("weights that live in host memory are gathered from where they are") {
    Config c = on_grid(wide(small_gpt(4)), 2, 1, 1, 1);
    c.sharding.zero_stage = 3;
    c.offload.parameters = OffloadTo::cpu;
    const Program p = programs(c, true)[0];
    std::int64_t gathers = 0;
    for (const Op& op : p.ops) {
        if (op.action < 0 || op.queue != Queue::collective || p.type(p.inputs(op)[0]).dims != 1 || change(p, op).pair != Pair::all_gather) continue;
        ++gathers;
        CHECK(p.buffer(p.inputs(op)[0]).state == StateKind::weight);
    }
    CHECK(gathers > 4);
}

// What `auto` takes on machines made up here.
#include "compile_fixture.hpp"
#include "plan/choices.hpp"

#include <doctest.h>

#include <algorithm>

using namespace quadrille;
using namespace quadrille::test;

namespace {

using AxisOrder = std::vector<std::string>;

Machine machine(std::int64_t ranks, std::int64_t per_node) {
    Machine m;
    m.links = assumed_topology(ranks, per_node);
    m.links.speeds[3] = {5e-6, 1e9};
    return m;
}

AxisOrder order_on(const Config& c, const Machine& m) {
    Config open = c;
    open.grid.order.clear();
    const Choices made = choose(open, {}, m);
    REQUIRE(made.made.size() == 1);
    CHECK(made.made[0].key == "grid.order");
    CHECK(!leaves_open(made.config));
    return made.config.grid.order;
}

// As tp sends most: many micro-batches, each of four all-reduces a layer, against gradients once a step.
Config chatty(int dp, int tp, int pp, int sp) {
    Config c = on_grid(small_gpt(4), dp, tp, pp, sp);
    c.train.gradient_accumulation_steps = 16;
    c.train.global_batch_size = c.train.micro_batch_size * 16 * dp;
    return c;
}

}  // namespace

TEST_CASE("the axis that sends most is put inside nodes, however the launcher deals ranks out") {
    const Config c = chatty(3, 2, 1, 1);
    CHECK(order_on(c, machine(6, 2))[0] == "tp");  // ranks 0 and 1 on the first node, and so on
    Machine dealt = machine(6, 2);
    for (std::size_t r = 0; r < 6; ++r) dealt.links.places[r].node = static_cast<int>(r % 3);  // one to each node in turn
    CHECK(order_on(c, dealt)[0] == "dp");  // so tp's pairs are three apart
    Machine sockets = machine(6, 0);
    for (std::size_t r = 0; r < 6; ++r) sockets.links.places[r].socket = static_cast<int>(r % 3);
    sockets.links.speeds = {LinkSpeed{1e-6, 2e10}, LinkSpeed{1e-6, 2e10}, LinkSpeed{2e-6, 5e9}, LinkSpeed{2e-6, 5e9}};
    CHECK(order_on(c, sockets)[0] == "dp");
}

TEST_CASE("by bytes and not by name: where dp sends most, dp it is") {
    Config c = on_grid(wide(small_gpt(4)), 2, 3, 1, 1);
    c.train.micro_batch_size = 1;
    c.train.gradient_accumulation_steps = 1;
    c.train.global_batch_size = 2;
    c.model.seq_length = 4;
    CHECK(order_on(c, machine(6, 2))[0] == "dp");
}

TEST_CASE("on links that are all alike, and where nothing is sent, the usual order stays; axes of one rank stand last") {
    CHECK(order_on(chatty(2, 2, 2, 1), machine(8, 0)) == AxisOrder{"tp", "dp", "pp", "sp"});
    CHECK(order_on(small_gpt(2), machine(1, 0)) == AxisOrder{"tp", "sp", "dp", "pp"});
    Machine noisy = machine(4, 2);  // measured of one machine that is pretended to be two: alike but for noise, so near is better still
    noisy.links.speeds = {LinkSpeed{1e-6, 1.00e10}, LinkSpeed{1e-6, 1.00e10}, LinkSpeed{1e-6, 1.00e10}, LinkSpeed{1.01e-6, 0.99e10}};
    CHECK(order_on(chatty(2, 2, 1, 1), noisy)[0] == "tp");
}

TEST_CASE("the reason names what is sent and the links") {
    Config c = chatty(3, 2, 1, 1);
    c.grid.order.clear();
    Machine m = machine(6, 2);
    m.assumed = false;
    const std::string said = text(choose(c, {}, m).made[0]);
    CAPTURE(said);
    CHECK(said.starts_with("grid.order auto: tp-dp-sp-pp, since a rank sends tp "));
    CHECK(said.find("inside a node, dp ") != std::string::npos);
    CHECK(said.find("between nodes 5.00 us and 1 GB/s (measured)") != std::string::npos);
}

namespace {

std::int64_t moves_of_gradients(const Config& c) {
    const Compiled compiled = compile(c, Purpose::training, {});
    const Program& p = compiled.programs[0];
    return std::count_if(p.ops.begin(), p.ops.end(), [&](const Op& op) {
        return op.queue == Queue::collective && p.type(p.inputs(op)[0]).book == Book::gradients && p.type(p.inputs(op)[0]).dims == 1;
    });
}

Config with_auto_bucket(Config c, const Machine& m) {
    c.comm.bucket_size = 0;
    const Choices made = choose(c, {}, m);
    REQUIRE(made.made.size() == 1);
    CHECK(made.made[0].key == "comm.bucket_size");
    CHECK(!leaves_open(made.config));
    return made.config;
}

}  // namespace

TEST_CASE("buckets are large where a message is dear, and small where only bytes are") {
    Config c = on_grid(wide(small_gpt(8)), 2, 1, 1, 1);
    c.train.gradient_accumulation_steps = 1;
    c.train.global_batch_size = 4;
    Machine dear = machine(2, 0), cheap = dear;
    dear.flops_per_second = cheap.flops_per_second = 1e9;
    for (LinkSpeed& l : dear.links.speeds) l = {0.1, 1e12};
    for (LinkSpeed& l : cheap.links.speeds) l = {0, 1e8};
    const std::int64_t one = moves_of_gradients(with_auto_bucket(c, dear)), many = moves_of_gradients(with_auto_bucket(c, cheap));
    CHECK(one == 1);
    CHECK(many > 3);
    cheap.all_reduces = {{2, 8, 0.2}, {2, 1 << 20, 0.2 + 1e-9}};  // measured collectives tell more than links
    CHECK(moves_of_gradients(with_auto_bucket(c, cheap)) == 1);
    for (RankPlace& p : cheap.links.places) p.node = static_cast<int>(&p - cheap.links.places.data());  // but not of what leaves a node
    CHECK(moves_of_gradients(with_auto_bucket(c, cheap)) == many);
}

TEST_CASE("where moves take the cores of arithmetic nothing is won by small buckets, and of sizes alike the usual one is taken") {
    Config c = on_grid(wide(small_gpt(8)), 2, 1, 1, 1);
    Machine m = machine(2, 0);
    m.flops_per_second = 1e9;
    for (LinkSpeed& l : m.links.speeds) l = {0, 1e8};
    m.core_share = 1;
    CHECK(moves_of_gradients(with_auto_bucket(c, m)) == 1);  // all of them are less than the usual size
    for (RankPlace& p : m.links.places) p.node = static_cast<int>(&p - m.links.places.data());
    CHECK(moves_of_gradients(with_auto_bucket(c, m)) > 3);  // a network moves by itself
    Config large = c;
    large.model.hidden_size *= 16;
    large.model.ffn_hidden_size *= 16;
    large.model.head_dim *= 16;
    for (RankPlace& p : m.links.places) p.node = 0;
    CHECK(with_auto_bucket(large, m).comm.bucket_size == CommConfig{}.bucket_size);
}

TEST_CASE("a size that takes more memory or does not fit is not taken; where none fits, and without moves, the usual size stays") {
    Config c = on_grid(wide(small_gpt(8)), 2, 1, 1, 1);
    c.sharding.zero_stage = 2;  // a bucket's gradients are whole while they wait
    Machine dear = machine(2, 0);
    for (LinkSpeed& l : dear.links.speeds) l = {0.1, 1e12};
    const auto peak = [&](const Config& x) { return static_cast<double>(compile(x, Purpose::training, {}).programs[0].peaks[0].arena); };
    Config small = c, large = c;
    small.comm.bucket_size = 1;
    large.comm.bucket_size = 1 << 30;
    REQUIRE(peak(large) > 1.05 * peak(small));
    const Config usual = with_auto_bucket(c, dear);
    CHECK(usual.comm.bucket_size > 1);
    CHECK(peak(usual) <= 1.05 * peak(small));
    c.sharding.zero_stage = 0;  // where all gradients are there anyway
    CHECK(peak(with_auto_bucket(c, dear)) <= 1.05 * peak(c));
    c.sharding.zero_stage = 2;
    c.device.memory_limit = 1;
    CHECK(with_auto_bucket(c, dear).comm.bucket_size == CommConfig{}.bucket_size);
    CHECK(with_auto_bucket(small_gpt(2), dear).comm.bucket_size == CommConfig{}.bucket_size);
}

TEST_CASE("a step takes its arithmetic where moves are hidden, and all of both without overlap") {
    Config c = on_grid(wide(small_gpt(4)), 2, 1, 1, 1);
    c.comm.bucket_size = 1;
    Machine m = machine(2, 0);
    m.flops_per_second = 1e6;
    const auto time = [&](const Config& x) {
        const Compiled compiled = compile(x, Purpose::training, {});
        const Grid grid = compiled.tables->grid();
        Pace pace(grid, m);
        double flops = 0, moves = 0;
        for (const Op& op : compiled.programs[0].ops) {
            flops += quadrille::flops(compiled.programs[0], op);
            if (moves_between_ranks(op)) moves += pace.seconds(move_cost(compiled.programs[0], op, {}));
        }
        return std::tuple(step_time(compiled.programs[0], pace), flops / m.flops_per_second, moves);
    };
    const auto [hidden, compute, moves] = time(c);
    CHECK(hidden.compute == doctest::Approx(compute));
    CHECK(hidden.seconds > hidden.compute);
    CHECK(hidden.seconds < compute + moves);
    c.comm.overlap = false;
    const auto [plain, compute2, moves2] = time(c);
    CHECK(plain.seconds == doctest::Approx(compute2 + moves2));
    c.comm.overlap = true;
    m.core_share = 1;  // arithmetic stands still meanwhile
    CHECK(std::get<0>(time(c)).seconds == doctest::Approx(compute + moves));
    m.core_share = 0.5;
    const StepTime slowed = std::get<0>(time(c));
    CHECK(slowed.compute == doctest::Approx(compute));
    CHECK(slowed.seconds > hidden.seconds);
    CHECK(slowed.seconds < compute + moves);
}

TEST_CASE("through host memory a step takes the time of the copies too, of which overlap hides some") {
    Config c = on_grid(wide(small_gpt(4)), 2, 1, 1, 1);
    c.comm.bucket_size = 1;
    Machine m = machine(2, 0);
    m.flops_per_second = 1e6;
    double copies = 0;
    const auto time = [&](double bandwidth, bool through_host) {
        m.copy_bandwidth = bandwidth;
        const Compiled compiled = compile(c, Purpose::training, through_host ? staged_workspace() : Workspace(some_workspace));
        const Grid grid = compiled.tables->grid();
        Pace pace(grid, m);
        copies = 0;
        for (const auto& [queue, bytes] : tier_bytes(compiled.programs[0])) copies += static_cast<double>(bytes) / bandwidth;
        return step_time(compiled.programs[0], pace).seconds;
    };
    for (const bool overlaps : {true, false}) {
        c.comm.overlap = overlaps;
        const double direct = time(1e8, false);
        CHECK(copies == 0);
        CHECK(time(1e30, true) == doctest::Approx(direct));
        const double staged = time(1e8, true);
        CHECK(copies > 0);
        if (overlaps) CHECK(staged < direct + 0.9 * copies);
        else CHECK(staged == doctest::Approx(direct + copies));
    }
}

TEST_CASE("a change of an input takes the choices of the input that it changes") {
    Config open, settled;
    open.grid.order.clear();
    open.comm.bucket_size = 0;
    CHECK(leaves_open(open));
    settled.grid.order = {"pp", "dp", "sp", "tp"};
    settled.comm.bucket_size = 77;
    const Config c = settled_like(open, settled);
    CHECK(c.grid.order == settled.grid.order);
    CHECK(c.comm.bucket_size == 77);
    CHECK(settled_like(Config{}, settled) == Config{});
    const Choices before = chosen_before(open, settled);
    CHECK(before.config == c);
    REQUIRE(before.made.size() == 2);
    CHECK(text(before.made[0]) == "grid.order auto: pp-dp-sp-tp, as the run has chosen that goes on here");
    CHECK(before.made[1].value == "77");
    CHECK(chosen_before(Config{}, settled).made.empty());
}

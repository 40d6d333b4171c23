// Buckets, overlap and fusion: what they join, and that each key changes the program.
#include "compile_fixture.hpp"
#include "ir/print.hpp"
#include "ir/table.hpp"

#include <doctest.h>

#include <set>

using namespace quadrille;
using namespace quadrille::test;

namespace {

Program program_of(const Config& c) { return compile(c, Purpose::training, {}).programs[0]; }

// Tensors per all-reduce of gradients over the data axes.
std::vector<int> buckets(const Program& p) {
    std::vector<int> out;
    for (const Op& op : p.ops)
        if (op.kind == Kind::redistribute && op.queue == Queue::collective && p.type(p.inputs(op)[0]).book == Book::gradients &&
            p.type(p.inputs(op)[0]).place.partial_sum.has(Axis::shard))
            out.push_back(op.inputs);
    return out;
}

int count(const Program& p, Kind k, Part part) {
    int n = 0;
    for (const Op& op : p.ops) n += op.kind == k && op.part == part;
    return n;
}

}  // namespace

TEST_CASE("bucket_size joins units until they hold that many bytes") {
    Config c = on_grid(small_gpt(4), 2, 1, 1, 1);  // units: embedding, tied, 4 layers, head: of 2048 elements each
    c.comm.bucket_size = 1;
    CHECK(buckets(program_of(c)) == std::vector<int>(7, 1));
    c.comm.bucket_size = 1 << 30;
    CHECK(buckets(program_of(c)) == std::vector<int>{7});
    c.comm.bucket_size = 3 * 8192;
    const auto some = buckets(program_of(c));
    CHECK(some.size() > 1);
    CHECK(some.size() < 7);
    std::set<std::string> texts;
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{3 * 8192}, std::int64_t{1} << 30}) {
        c.comm.bucket_size = size;
        texts.insert(text(program_of(c)));
    }
    CHECK(texts.size() == 3);
}

TEST_CASE("scatters of gradients and gathers of new weights travel in buckets, gathers for a use each by itself") {
    const auto tensors = [](const Program& p, Pair pair) {  // per move of units' buffers
        std::multiset<int> out;
        for (const Op& op : p.ops)
            if (op.kind == Kind::redistribute && op.queue == Queue::collective && p.type(p.inputs(op)[0]).dims == 1 &&
                change(p.type(p.inputs(op)[0]), p.tables->type(p.attributes(op).types[0]).place).pair == pair)
                out.insert(op.inputs);
        return out;
    };
    Config c = on_grid(small_gpt(4), 2, 1, 1, 1);  // 7 units, 4 microbatches
    for (const int stage : {1, 2, 3}) {
        c.sharding.zero_stage = stage;
        const int times = stage == 1 ? 1 : 4;
        c.comm.bucket_size = 1;
        const auto alone = tensors(program_of(c), Pair::reduce_scatter);
        CHECK(alone.size() == static_cast<std::size_t>(7 * times));
        CHECK(alone.count(1) == alone.size());
        c.comm.bucket_size = 1 << 30;
        const Program p = program_of(c);
        CHECK(tensors(p, Pair::reduce_scatter) == std::multiset<int>{7 * times});
        if (stage < 3) CHECK(tensors(p, Pair::all_gather) == std::multiset<int>{7});
        else CHECK(tensors(p, Pair::all_gather).count(1) == tensors(p, Pair::all_gather).size());
    }
}

TEST_CASE("a bucket leaves as soon as it is full, in the backward") {
    Config c = on_grid(small_gpt(4), 2, 1, 1, 1);
    c.comm.bucket_size = 1;
    const Program p = program_of(c);
    std::size_t first = 0, last_backward = 0;
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
        const Op& op = p.ops[i];
        if (op.part == Part::backward_weight) last_backward = i;
        if (!first && op.queue == Queue::collective && p.type(p.inputs(op)[0]).book == Book::gradients) first = i;
    }
    CHECK(first < last_backward);
}

TEST_CASE("with overlap a move is done before its first reader, a send before the second send after it; without, at once") {
    Config c = on_grid(small_gpt(4), 2, 2, 2, 1);
    const Compiled on = compile(c, Purpose::training, {});
    c.comm.overlap = false;
    const Compiled off = compile(c, Purpose::training, {});
    CHECK(text(on.programs[0]) != text(off.programs[0]));
    for (const Program& p : off.programs)
        for (const Op& op : p.ops) CHECK(op.until == -1);
    for (const Program& p : on.programs) {
        const auto n = static_cast<std::int32_t>(p.ops.size());
        for (std::int32_t i = 0; i < n; ++i) {
            const Op& op = p.ops[static_cast<std::size_t>(i)];
            if (op.queue == Queue::compute) {
                CHECK(op.until == -1);
                continue;
            }
            CHECK((op.until == -1 || op.until > i + 1));  // what the next op needs is done at once
            if (op.kind == Kind::send) continue;
            std::int32_t reader = n;
            for (std::int32_t j = n; j-- > i + 1;)
                for (const TensorId t : p.inputs(p.ops[static_cast<std::size_t>(j)]))
                    for (const TensorId y : p.outputs(op))
                        if (t == y) reader = j;
            CHECK(op.until == (reader == i + 1 ? -1 : reader));
        }
    }
}

TEST_CASE("column-parallel products take bias and activation in, row-parallel ones only on one rank") {
    const Program one = program_of(small_gpt(2));
    CHECK(count(one, Kind::matmul_gelu, Part::forward) == 2 * 4);  // layers x microbatches
    CHECK(count(one, Kind::gelu, Part::forward) == 0);
    CHECK(count(one, Kind::add, Part::forward) == 0);  // residuals, and the positions, go with norms
    CHECK(count(one, Kind::residual_norm, Part::forward) == 4 * (1 + 2 * 2));
    const Program cut = program_of(on_grid(small_gpt(2), 1, 2, 1, 1));
    CHECK(count(cut, Kind::matmul_gelu, Part::forward) == 2 * 4);
    CHECK(count(cut, Kind::add, Part::forward) == 4 * 2 * 2);  // the biases of two row-parallel products a layer
    CHECK(count(cut, Kind::residual_norm, Part::forward) == 4 * (1 + 2 * 2));
    CHECK(count(program_of(small_llama(2)), Kind::matmul_gelu, Part::forward) == 0);
}

TEST_CASE("a stage's last residual is sent on: it has no norm to go with") {
    const Compiled c = compile(on_grid(small_gpt(2), 1, 1, 2, 1), Purpose::training, {});
    CHECK(count(c.programs[0], Kind::residual_norm, Part::forward) == 4 * 2);
    CHECK(count(c.programs[0], Kind::add, Part::forward) == 4);
    CHECK(count(c.programs[1], Kind::residual_norm, Part::forward) == 4 * 2);
    CHECK(count(c.programs[1], Kind::add, Part::forward) == 0);
}

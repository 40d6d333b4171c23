// The layout, by hand on small programs and by its invariants on compiled ones.
#include "compile_fixture.hpp"

#include <doctest.h>

#include <numeric>

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Tensors of n floats, made by loads and read by adds.
struct Small {
    std::shared_ptr<Tables> tables = std::make_shared<Tables>(Grid());
    Program p{tables};
    TensorId load(std::int64_t n) {
        Attributes a;
        a.types = {tables->intern(TensorType({n}, DType::f32))};
        return p.add(Kind::load, {}, a, {})[0];
    }
    TensorId add(TensorId x, TensorId y) {
        Attributes a;
        a.signature = "h,h->h";
        return p.add(Kind::add, {x, y}, a, {})[0];
    }
    const Buffer& of(TensorId t) const {
        return p.buffer(t);
    }
};

bool meet(const Buffer& a, const Buffer& b) { return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes; }

std::vector<Config> configs() {
    std::vector<Config> out = {small_gpt(), on_grid(small_gpt(), 2, 2, 1, 1), on_grid(small_llama(), 1, 6, 1, 1),
                               on_grid(small_gpt(), 1, 2, 1, 2), on_grid(small_gpt(4), 2, 1, 4, 1)};
    out.push_back(on_grid(small_gpt(4), 1, 1, 2, 1));
    out.back().pipeline.schedule = Schedule::gpipe;
    out.push_back(on_grid(small_llama(4), 1, 2, 2, 1));
    out.back().train.precision = Precision::bf16;
    return out;
}

}  // namespace

TEST_CASE("memory is taken again after the last reader, not before") {
    Small s;
    const TensorId a = s.load(100), b = s.load(100), c = s.add(a, b), d = s.add(c, b), e = s.add(d, d);
    lay_out(s.p, {});
    for (const TensorId x : {b, c}) CHECK(s.of(x).offset != s.of(a).offset);
    CHECK(s.of(c).offset != s.of(b).offset);
    CHECK(s.of(d).offset == s.of(a).offset);  // a died with c's birth
    CHECK(s.of(e).offset != s.of(d).offset);
    CHECK(s.p.peaks[0].arena == 3 * 448);  // 400 bytes each, aligned to 64
    CHECK(s.p.peaks[0].books[static_cast<std::size_t>(Book::activations)] == 1200);
    CHECK(s.p.peaks[0].packing == 144);
    CHECK(s.p.peaks[0].op == 2);
}

TEST_CASE("what is in flight keeps its memory") {
    Small s;
    const TensorId a = s.load(16), b = s.add(a, a), c = s.add(b, b), d = s.add(c, c);
    lay_out(s.p, {});
    CHECK(s.of(c).offset == s.of(a).offset);
    s.p.ops[1].until = 4;  // as of a move: its operands are occupied until the end
    lay_out(s.p, {});
    CHECK(s.of(c).offset != s.of(a).offset);
    CHECK(s.of(d).offset != s.of(a).offset);
}

TEST_CASE("state comes first, in the order of its declaration, and stays") {
    Small s;
    const TensorType t({1024}, DType::f32, {}, Book::weights);
    const TensorId x = s.load(1024);
    const TensorId w = s.p.declare("W.u", t, -1, s.p.add_buffer("W.u", -1, t, true)),
                   m = s.p.declare("M.u", t.in(Book::optimizer), -1, s.p.add_buffer("M.u", -1, t.in(Book::optimizer), true));
    s.add(x, w);
    lay_out(s.p, {});
    CHECK(s.of(w).offset == 0);
    CHECK(s.of(m).offset == 4096);  // though no op reads it
    CHECK(s.of(x).offset >= 8192);
    CHECK(s.p.peaks[0].books == std::array<std::int64_t, book_count>{4096, 0, 4096, 8192, 0});
}

TEST_CASE("workspace is for its op alone") {
    Small s;
    const TensorId a = s.load(16), b = s.add(a, a);
    s.add(b, b);
    lay_out(s.p, [](const Program&, const Op& op) { return op.kind == Kind::add ? std::int64_t{1000} : 0; });
    CHECK(s.p.ops[0].workspace == -1);
    CHECK(meet(s.p.buffers[static_cast<std::size_t>(s.p.ops[1].workspace)],
               s.p.buffers[static_cast<std::size_t>(s.p.ops[2].workspace)]));
    CHECK(s.p.peaks[0].books[static_cast<std::size_t>(Book::buffers)] == 1000);
}

TEST_CASE("staging lies behind all buffers: so much for each group of ranks that collectives go over") {
    const auto groups = [](const Config& config) {
        const Program bare = compile(config, Purpose::training, some_workspace).programs[0];
        const Program p = compile(config, Purpose::training, Workspace(some_workspace, 6400)).programs[0];
        const TierPeak &a = bare.peaks[0], &b = p.peaks[0];
        CHECK(bare.staging[0] == 0);
        CHECK(b.arena == a.arena + p.staging[0]);
        CHECK(b.packing == a.packing);
        CHECK(b.books[static_cast<std::size_t>(Book::buffers)] == a.books[static_cast<std::size_t>(Book::buffers)] + p.staging[0]);
        for (const Buffer& x : p.buffers) CHECK(x.offset + x.bytes <= b.arena - p.staging[0]);
        return p.staging[0] / 6400;
    };
    CHECK(groups(small_gpt()) == 0);
    CHECK(groups(on_grid(small_gpt(), 2, 1, 1, 1)) == 1);
    CHECK(groups(on_grid(small_gpt(), 2, 2, 1, 1)) == 3);     // tp, dp, and both for the norm
    CHECK(groups(on_grid(small_gpt(4), 1, 1, 4, 1)) == 2);    // all stages for the norm, two for the tied table
}

TEST_CASE("where there is an nvme tier its transfers' staging lies at the end of host memory, on a block") {
    constexpr auto host = static_cast<std::size_t>(Tier::host), buffers = static_cast<std::size_t>(Book::buffers);
    Config config = small_gpt();
    for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
        config.offload.optimizer = to;
        const TierPeak bare = compile(config, Purpose::training, some_workspace).programs[0].peaks[host];
        const Program p = compile(config, Purpose::training, Workspace(some_workspace, 0, 10 * disk_alignment)).programs[0];
        const std::int64_t staging = to == OffloadTo::nvme ? 10 * disk_alignment : 0;
        CHECK(p.staging[host] == staging);
        CHECK(p.peaks[host].books[buffers] == bare.books[buffers] + staging);
        CHECK(p.peaks[host].arena - staging - bare.arena < disk_alignment);
        if (staging > 0) CHECK(p.peaks[host].arena % disk_alignment == 0);
        CHECK(p.peaks[host].arena == std::accumulate(p.peaks[host].books.begin(), p.peaks[host].books.end(), p.peaks[host].packing));
    }
}

TEST_CASE("messages' staging lies where messages do, in host memory in front of the disk's") {
    constexpr auto host = static_cast<std::size_t>(Tier::host), buffers = static_cast<std::size_t>(Book::buffers);
    Config config = on_grid(small_gpt(), 2, 2, 1, 1);
    for (const OffloadTo to : {OffloadTo::none, OffloadTo::nvme}) {
        config.offload.optimizer = to;
        Workspace bare = staged_workspace(), with(some_workspace, 6400, 10 * disk_alignment);
        with.through_host = true;
        const Program p = compile(config, Purpose::training, with).programs[0], q = compile(config, Purpose::training, bare).programs[0];
        const std::int64_t staging = 3 * 6400 + (to == OffloadTo::nvme ? 10 * disk_alignment : 0);
        CHECK(p.staging == std::array<std::int64_t, tier_count>{0, staging, 0});
        CHECK(p.peaks[0].arena == q.peaks[0].arena);
        CHECK(p.peaks[host].books[buffers] == q.peaks[host].books[buffers] + staging);
        for (const Buffer& b : p.buffers)
            if (b.tier == Tier::host) CHECK(b.offset + b.bytes <= p.peaks[host].arena - staging);
    }
}

TEST_CASE("no two buffers that live at once overlap, and the peak is what is live") {
    for (const Config& config : configs()) {
        const Compiled c = compile(config, Purpose::training, some_workspace);
        for (const Program& p : c.programs) {
            std::vector<const Buffer*> placed;
            for (const Buffer& b : p.buffers)
                if (b.offset >= 0) placed.push_back(&b);
            std::int64_t clashes = 0, outside = 0, crooked = 0;
            for (std::size_t i = 0; i < placed.size(); ++i) {
                outside += placed[i]->offset + placed[i]->bytes > p.peaks[0].arena;
                crooked += placed[i]->offset % buffer_alignment != 0;
                for (std::size_t j = 0; j < i; ++j)
                    clashes += placed[i]->first <= placed[j]->last && placed[j]->first <= placed[i]->last &&
                               meet(*placed[i], *placed[j]);
            }
            CHECK(clashes == 0);
            CHECK(outside == 0);
            CHECK(crooked == 0);
            std::vector<std::int64_t> change(p.ops.size() + 2, 0);
            for (const Buffer* b : placed) {
                change[static_cast<std::size_t>(b->first)] += b->bytes;
                change[static_cast<std::size_t>(std::min<std::int32_t>(b->last, static_cast<std::int32_t>(p.ops.size()))) + 1] -=
                    b->bytes;
            }
            std::partial_sum(change.begin(), change.end(), change.begin());
            const std::int64_t books = std::accumulate(p.peaks[0].books.begin(), p.peaks[0].books.end(), std::int64_t{0});
            CHECK(books == *std::max_element(change.begin(), change.end()));
            CHECK(p.peaks[0].arena == books + p.peaks[0].packing);
            CHECK(p.peaks[0].packing >= 0);
            CHECK(static_cast<double>(p.peaks[0].packing) <
                  0.25 * static_cast<double>(books));  // 64-byte grain weighs on tensors this small
        }
    }
}

TEST_CASE("training and evaluation find the state at the same place") {
    for (const Config& config : configs()) {
        const Compiled train = compile(config, Purpose::training, some_workspace),
                       evaluate = compile(config, Purpose::evaluation, some_workspace);
        for (std::size_t r = 0; r < train.programs.size(); ++r) {
            const auto state = [](const Program& p) {
                std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> out;
                for (const Buffer& b : p.buffers)
                    if (b.persistent) out.emplace_back(p.tables->name(b.name), b.offset, b.bytes);
                return out;
            };
            CHECK(state(train.programs[r]) == state(evaluate.programs[r]));
        }
    }
}

TEST_CASE("a snapshot lies in host memory, in the ledger, and shrinks with the ranks that hold the same") {
    constexpr auto host = static_cast<std::size_t>(Tier::host);
    constexpr auto buffers = static_cast<std::size_t>(Book::buffers);
    std::int64_t values = 0;  // of parameters and moments
    std::vector<std::int64_t> bytes;
    for (const int dp : {1, 2, 4}) {
        Workspace with;
        with.snapshot = true;
        const Config c = on_grid(small_gpt(), dp, 1, 1, 1);
        const Program plain = compile(c, Purpose::training, {}).programs[0], p = compile(c, Purpose::training, with).programs[0];
        values = 0;
        for (const Parameter& q : p.parameters) {
            std::int64_t n = 3;
            for (const std::int64_t d : q.shape) n *= d;
            values += n;
        }
        CHECK(plain.snapshot == 0);
        CHECK(p.peaks[host].books[buffers] == plain.peaks[host].books[buffers] + p.snapshot);
        CHECK(p.peaks[host].arena == plain.peaks[host].arena + p.snapshot);
        CHECK(p.snapshot >= 4 * values / dp);
        bytes.push_back(p.snapshot);
    }
    CHECK(bytes[1] < 0.6 * static_cast<double>(bytes[0]));
    CHECK(bytes[2] < 0.6 * static_cast<double>(bytes[1]));
}

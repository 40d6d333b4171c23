// When units are gathered in front of their use, how many are whole at a time, and which of them stay.
#include "compile_fixture.hpp"
#include "ir/print.hpp"
#include "ir/table.hpp"
#include "sampled.hpp"

#include <doctest.h>

#include <algorithm>
#include <map>
#include <set>

using namespace quadrille;
using namespace quadrille::test;

namespace {

struct Fetch {
    std::size_t issue = 0, use = 0;  // ops: the gather, and the first that reads its views
    std::string unit;
    Part part = Part::forward;
};

std::vector<Fetch> fetches(const Program& p) {
    std::vector<Fetch> out;
    std::map<BufferId, std::size_t> open;
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
        const Op& op = p.ops[i];
        for (const TensorId t : p.inputs(op)) {
            const auto it = open.find(p.tensors[static_cast<std::size_t>(t)].buffer);
            if (it == open.end() || op.kind == Kind::split) continue;
            out[it->second].use = i;
            open.erase(it);
        }
        if (op.kind != Kind::redistribute || op.queue != Queue::collective || p.type(p.inputs(op)[0]).dims != 1) continue;
        const Tensor &from = p.tensors[static_cast<std::size_t>(p.inputs(op)[0])], &to = p.tensors[static_cast<std::size_t>(p.outputs(op)[0])];
        if (from.buffer == to.buffer || change(p.type(p.inputs(op)[0]), p.type(p.outputs(op)[0]).place).pair != Pair::all_gather) continue;
        open[to.buffer] = out.size();
        out.push_back({i, 0, p.tables->name(op.unit), op.part});
    }
    CHECK(open.empty());
    return out;
}

// The most whole buffers of this letter, of units' weights ("w.") or gradients ("g."), that are there at once: of any unit and of one.
struct Most { int units = 0, of_one = 0; };
Most most_copies(const Program& p, const std::string& letter = "w.") {
    std::vector<const Buffer*> whole;
    for (const Buffer& b : p.buffers)
        for (const Flat& f : p.flats)
            if (p.tables->name(b.name) == letter + f.unit && b.bytes == f.length * 4) whole.push_back(&b);
    Most most;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(p.ops.size()); ++i) {
        std::map<NameId, int> here;
        int all = 0;
        for (const Buffer* b : whole)
            if (b->first <= i && i <= b->last) most.of_one = std::max(most.of_one, ++here[b->name]), ++all;
        most.units = std::max(most.units, all);
    }
    return most;
}

Config stage_3(Config c, int prefetch = 1) {
    c.sharding.zero_stage = 3;
    c.sharding.prefetch = prefetch;
    return c;
}

Config scheduled(Config c, Schedule s, int virtual_stages = 1) {
    c.pipeline.schedule = s;
    c.pipeline.virtual_stages = virtual_stages;
    return c;
}

std::vector<Program> programs_of(const Config& c, Purpose purpose = Purpose::training) { return compile(c, purpose, some_workspace).programs; }
std::int64_t peak(const Program& p) { return p.peaks[0].arena; }

std::vector<Config> pipelines() {
    std::vector<Config> out = {on_grid(small_llama(6), 2, 1, 1, 1)};
    const Config two = on_grid(small_llama(6), 2, 1, 2, 1);
    for (const Schedule s : {Schedule::one_f_one_b, Schedule::gpipe, Schedule::zero_bubble}) out.push_back(scheduled(two, s));
    out.push_back(scheduled(two, Schedule::interleaved, 3));
    out.push_back(two);
    out.back().recompute.granularity = Granularity::full;
    return out;
}

// Weights far larger than activations, and gradients that wait for no others: what is kept shows in the peak.
Config heavy(Config c) {
    c.comm.bucket_size = 1;
    c.model.hidden_size = 96;
    c.model.head_dim = 16;
    c.model.ffn_hidden_size = 384;
    return c;
}

}  // namespace

TEST_CASE("with depth d at most d + 1 units are whole, gathered in the order in which they are used") {
    for (const Config& c : pipelines())
        for (const int depth : {0, 1, 2, 3})
            for (const Program& p : programs_of(stage_3(c, depth))) {
                CAPTURE(depth);
                CAPTURE(p.coordinate);
                CHECK(most_copies(p).units == depth + 1);
                const auto all = fetches(p);
                CHECK(std::is_sorted(all.begin(), all.end(), [](const Fetch& a, const Fetch& b) { return a.use < b.use; }));
                for (std::size_t k = 0; k < all.size(); ++k) CHECK(all[k].issue < all[k].use);
            }
}

TEST_CASE("a table that both ends of the model read stays in between, beside the units on their way") {
    for (const int depth : {0, 1, 3}) CHECK(most_copies(programs_of(stage_3(on_grid(small_gpt(6), 2, 1, 1, 1), depth))[0]).units == depth + 2);
}

TEST_CASE("depth 0 gathers at the use, without overlap every depth does") {
    for (const Config& c : pipelines()) {
        for (const Program& p : programs_of(stage_3(c, 0)))
            for (const Fetch& f : fetches(p)) {
                CHECK(p.ops[f.issue].until == -1);
                CHECK(p.ops[f.issue + 1].kind == Kind::split);
                CHECK(f.use == f.issue + 2);
            }
        Config eager = stage_3(c, 3), never = stage_3(c, 0);
        eager.comm.overlap = never.comm.overlap = false;
        const auto a = programs_of(eager), b = programs_of(never);
        for (std::size_t r = 0; r < a.size(); ++r) CHECK(text(a[r]) == text(b[r]));
    }
}

TEST_CASE("a gather is issued d stretches of work before its use: ops of one unit and action, whatever moves in between") {
    for (const Config& c : pipelines())
        for (const int depth : {1, 2, 4})
            for (const Program& p : programs_of(stage_3(c, depth)))
                for (const Fetch& f : fetches(p)) {
                    const auto works = [&](std::size_t i) {
                        const Op& op = p.ops[i];
                        return op.queue == Queue::compute && op.kind != Kind::split && op.action >= 0;
                    };
                    int stretches = 0;
                    std::pair<NameId, std::int32_t> last{-1, -1};
                    bool from_the_start = true;
                    for (std::size_t i = 0; i <= f.use; ++i) {
                        if (!works(i)) continue;
                        if (i < f.issue) from_the_start = false;
                        const std::pair now(p.ops[i].unit, p.ops[i].action);
                        if (i > f.issue && now != last) ++stretches;
                        last = i > f.issue ? now : std::pair<NameId, std::int32_t>{-1, -1};
                    }
                    CAPTURE(p.coordinate);
                    CAPTURE(text(p, f.issue));
                    CAPTURE(text(p, f.use));
                    CAPTURE(stretches);
                    CHECK((stretches == depth + 1 || (from_the_start && stretches <= depth)));
                }
}

TEST_CASE("prefetch gathers no more often, and each depth is another program") {
    const Config c = on_grid(small_llama(6), 2, 1, 1, 1);
    std::set<std::string> texts;
    const std::size_t gathers = fetches(programs_of(stage_3(c, 0))[0]).size();
    for (const int depth : {0, 1, 2, 4}) {
        const Program p = programs_of(stage_3(c, depth))[0];
        texts.insert(text(p));
        CHECK(fetches(p).size() == gathers);
    }
    CHECK(texts.size() == 4);
    // the embedding's table is not read again
    CHECK(gathers == static_cast<std::size_t>(c.train.gradient_accumulation_steps) * (8 + 7));
}

TEST_CASE("no more than two whole gradients at a time: one in the making, one on its way, however few the microbatches") {
    for (Config c : pipelines())
        for (const int stage : {2, 3})
            for (const int batch : {16, 4}) {
                c.sharding.zero_stage = stage;
                c.comm.bucket_size = 1;
                c.train.global_batch_size = batch;
                c.train.gradient_accumulation_steps = batch / c.train.micro_batch_size / c.grid.dp;
                for (const Program& p : programs_of(c)) {
                    CAPTURE(batch);
                    CHECK(most_copies(p, "g.").units == 2);
                }
                c.comm.overlap = false;
                for (const Program& p : programs_of(c)) CHECK(most_copies(p, "g.").units == 1);
                c.comm.overlap = true;
            }
}

TEST_CASE("under a memory limit the last units of the forward pass stay, as many as fit") {
    int filling = 0;
    for (Config c : sampled(pipelines(), 2)) {
        c = heavy(stage_3(c));
        const auto none = programs_of(c);
        c.sharding.keep_gathered = true;
        const auto all = programs_of(c);
        for (std::size_t r = 0; r < none.size(); ++r) {
            CAPTURE(r);
            CHECK(fetches(all[r]).size() < fetches(none[r]).size());
            if (peak(all[r]) <= peak(none[r])) {  // one copy for all microbatches in flight may be less than two units on their way
                c.device.memory_limit = peak(all[r]);
                CHECK(text(programs_of(c)[r]) == text(all[r]));
                c.device.memory_limit = 0;
                continue;
            }
            ++filling;
            std::size_t before = fetches(none[r]).size();
            std::set<std::size_t> counts;
            for (int share = 0; share <= 10; ++share) {
                c.device.memory_limit = peak(none[r]) + (peak(all[r]) - peak(none[r])) * share / 10;
                const auto filled = programs_of(c);
                const auto gathers = fetches(filled[r]).size();
                CHECK(peak(filled[r]) <= c.device.memory_limit);
                CHECK(gathers <= before);
                counts.insert(before = gathers);
            }
            CHECK(counts.size() >= (none.size() == 1 ? 5 : 2));
            CHECK(before == fetches(all[r]).size());
            // one byte too few for all of them
            c.device.memory_limit = peak(all[r]) - 1;
            CHECK(peak(programs_of(c)[r]) <= c.device.memory_limit);
            // A step that does not fit anyway is not changed.
            c.device.memory_limit = peak(none[r]) / 2;
            CHECK(text(programs_of(c)[r]) == text(none[r]));
            c.device.memory_limit = 0;
        }
    }
    CHECK(filling > (QUADRILLE_SAMPLED ? 3 : 6));
}

TEST_CASE("which units stay: from the end of the forward pass") {
    Config c = heavy(stage_3(on_grid(small_llama(6), 2, 1, 1, 1)));
    c.sharding.keep_gathered = true;
    const std::vector<std::string> backwards = {"head", "layers.5", "layers.4", "layers.3", "layers.2", "layers.1", "layers.0"};
    const Program all = programs_of(c)[0];
    std::set<std::size_t> sizes;
    for (std::int64_t limit = peak(all); ; limit -= QUADRILLE_SAMPLED ? 4 * 8192 : 8192) {
        c.device.memory_limit = limit;
        const Program p = programs_of(c)[0];
        std::set<std::string> again;  // units that the backward pass gathers
        for (const Fetch& f : fetches(p))
            if (f.part != Part::forward) again.insert(f.unit);
        const std::size_t stay = backwards.size() - again.size();
        for (std::size_t k = 0; k < backwards.size(); ++k) CHECK(again.contains(backwards[k]) == (k >= stay));
        sizes.insert(stay);
        if (stay == 0) break;
    }
    CHECK(sizes.size() > 3);
}

TEST_CASE("a unit that stays is gathered once a microbatch, and one copy serves all that are in flight") {
    Config c = stage_3(on_grid(small_llama(6), 2, 1, 1, 1));
    c.sharding.keep_gathered = true;
    const auto microbatches = static_cast<std::size_t>(c.train.gradient_accumulation_steps);
    CHECK(fetches(programs_of(c)[0]).size() == microbatches * 8);
    Config all_first = scheduled(stage_3(on_grid(small_llama(6), 2, 1, 2, 1)), Schedule::gpipe);
    all_first.sharding.keep_gathered = true;
    for (const Program& p : programs_of(all_first)) {
        CHECK(most_copies(p).of_one <= 2);  // the next is on its way
        std::map<std::string, int> times;
        for (const Fetch& f : fetches(p)) ++times[f.unit];
        for (const auto& [unit, n] : times) CHECK(n == (unit == "embedding" ? static_cast<int>(microbatches) : 1));
    }
}

TEST_CASE("nothing stays where nothing is fetched, and in evaluation") {
    for (const int stage : {0, 1, 2, 3}) {
        Config c = on_grid(small_llama(4), 2, 1, 1, 1), keeps = c;
        c.sharding.zero_stage = keeps.sharding.zero_stage = stage;
        keeps.sharding.keep_gathered = true;
        keeps.device.memory_limit = std::int64_t{1} << 40;
        if (stage < 3) CHECK(text(programs_of(c)[0]) == text(programs_of(keeps)[0]));
        CHECK(text(programs_of(c, Purpose::evaluation)[0]) == text(programs_of(keeps, Purpose::evaluation)[0]));
    }
}

TEST_CASE("programs that keep what they can are sound") {
    for (Config c : pipelines()) {
        c = stage_3(c, 2);
        c.sharding.keep_gathered = true;
        const Program one = compile(serial(c), Purpose::training, {}).programs[0];
        for (const std::int64_t limit : {std::int64_t{0}, (peak(programs_of(c)[0]) * 9) / 10}) {
            c.device.memory_limit = limit;
            const auto programs = programs_of(c);
            const Faults faults = verify(programs, one);
            if (!faults.empty()) FAIL_CHECK(text(programs, faults[0]));
        }
    }
}

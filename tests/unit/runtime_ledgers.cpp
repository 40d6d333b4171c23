// The accounts of a step: time that adds up, memory counted from what was handed out, the arena both stand on.
#include "base/error.hpp"
#include "cpu/device.hpp"
#include "runtime/arena.hpp"
#include "runtime/memory_meter.hpp"
#include "runtime/time_ledger.hpp"

#include <doctest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>

using namespace quadrille;

TEST_CASE("time: every stretch is charged once, so the categories are the wall time") {
    TimeLedger t(100.0);
    t.charge(Category::compute, 101.5);
    t.charge(Category::exposed_tp, 102.0);
    t.charge_split(Category::pipeline_idle, Category::exposed_pp, 102.25, 103.0);
    t.charge_split(Category::pipeline_idle, Category::exposed_pp, 90.0, 104.0);   // the sender had begun long before
    t.charge_split(Category::pipeline_idle, Category::exposed_pp, 200.0, 105.0);  // a clock that is ahead
    t.charge(Category::compute, 106.0);
    const Times& x = t.times();
    CHECK(at(x, Category::compute) == 2.5);
    CHECK(at(x, Category::exposed_tp) == 0.5);
    CHECK(at(x, Category::pipeline_idle) == 1.25);
    CHECK(at(x, Category::exposed_pp) == 1.75);
    CHECK(std::accumulate(x.begin(), x.end(), 0.0) == t.seconds());
    CHECK(t.seconds() == 6.0);
}

TEST_CASE("time: ops that ran behind the thread come first, then what it waited for, then what their queue waited for") {
    TimeLedger thread(100.0, true);
    thread.charge(Category::other, 101.0);
    thread.charge(Category::data, 103.0);
    thread.charge(Category::exposed_dp, 106.0);
    thread.charge(Category::other, 112.0);
    const std::vector<QueuedTime> ops = {
        {Category::compute, Category::other, 100.5, 102.0},        // launched while the thread did other things, ends while it reads
        {Category::compute, Category::exposed_copy, 104.0, 105.0}, // a gap of data, and of what the thread waits for
        {Category::optimizer, Category::exposed_copy, 108.0, 109.5},  // a gap that begins while the thread waits, and goes on for a copy
        {Category::compute, Category::other, 109.0, 111.0},        // clocks that differ: begins where the last one ends
    };
    const Times x = times_behind(thread, ops);
    CHECK(at(x, Category::compute) == 1.5 + 1 + 1.5);
    CHECK(at(x, Category::optimizer) == 1.5);
    CHECK(at(x, Category::data) == 1);
    CHECK(at(x, Category::exposed_dp) == 1 + 1);
    CHECK(at(x, Category::exposed_copy) == 2);
    CHECK(at(x, Category::other) == 0.5 + 1);
    CHECK(std::accumulate(x.begin(), x.end(), 0.0) == doctest::Approx(thread.seconds()));
    const Times none = times_behind(thread, {});
    CHECK(none == thread.times());
    const std::vector<QueuedTime> late = {{Category::compute, Category::other, 111.0, 115.0}};  // beyond the thread's own clock
    CHECK(at(times_behind(thread, late), Category::compute) == 1);
}

TEST_CASE("time: a joint move counts for the first of dp, sp, tp, pp") {
    CHECK(exposed(Axis::shard) == Category::exposed_dp);
    CHECK(exposed(AxisSet(Axis::replica) | Axis::sp) == Category::exposed_dp);
    CHECK(exposed(AxisSet(Axis::sp) | Axis::tp) == Category::exposed_sp);
    CHECK(exposed(AxisSet(Axis::tq) | Axis::pp) == Category::exposed_tp);
    CHECK(exposed(Axis::pp) == Category::exposed_pp);
    CHECK(name_of(Category::exposed_dp) == "exposed_dp");
    CHECK(name_of(Category::other) == "other");
}

TEST_CASE("memory: a buffer counts from its first op to its last, a move's until it is done") {
    auto tables = std::make_shared<Tables>(Grid());
    Program p(tables);
    const BufferId state = p.add_buffer("state", -1, TensorType({100}, DType::f32, {}, Book::weights), true);
    p.declare("state", TensorType({100}, DType::f32, {}, Book::weights), -1, state);
    p.buffers[0].offset = 0;
    const auto buffer = [&](Book book) { return p.add_buffer("b", -1, TensorType({1}, DType::f32, {}, book)); };
    const BufferId a = buffer(Book::activations), b = buffer(Book::gradients), c = buffer(Book::buffers);
    p.ops.resize(6);
    MemoryMeter meter(p, {});
    meter.touch(a, 1000, 1100, 0, 1);
    meter.touch(b, 2000, 2050, 1, 4);   // handed to a move that is done before op 4
    meter.touch(a, 1100, 1200, 2, 3);   // another part of the same buffer
    meter.touch(c, 3000, 3070, 4, 5);
    const BytesInUse peak = meter.peaks()[0];
    CHECK(peak.bytes == 400 + 200 + 50);
    CHECK(peak.books == std::array<std::int64_t, book_count>{400, 50, 0, 200, 0});
    CHECK(peak.op == 1);
    const std::vector<BytesInUse> timeline = meter.timeline()[0];
    const std::vector<std::pair<std::int32_t, std::int64_t>> wanted = {{0, 600}, {1, 650}, {3, 450}, {4, 470}, {5, 400}};
    REQUIRE(timeline.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(std::pair(timeline[i].op, timeline[i].bytes) == wanted[i]);
    CHECK(meter.use(b).last == 3);
    CHECK(meter.peaks()[1].bytes == 0);
}

namespace {

// Room for two more threads, whose stacks are large, and not for a third, while it lives.
class RoomForTwo {
  public:
    RoomForTwo() {
        constexpr std::size_t stack = std::size_t{1} << 30;
        pthread_getattr_default_np(&usual_);
        pthread_attr_t large;
        pthread_attr_init(&large);
        pthread_attr_setstacksize(&large, stack);
        pthread_setattr_default_np(&large);
        pthread_attr_destroy(&large);
        getrlimit(RLIMIT_AS, &limit_);
        std::int64_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        rlimit less = limit_;
        less.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + 5 * stack / 2;
        setrlimit(RLIMIT_AS, &less);
    }
    ~RoomForTwo() {
        setrlimit(RLIMIT_AS, &limit_);
        pthread_setattr_default_np(&usual_);
        pthread_attr_destroy(&usual_);
    }
    RoomForTwo(const RoomForTwo&) = delete;
    RoomForTwo& operator=(const RoomForTwo&) = delete;

  private:
    pthread_attr_t usual_;
    rlimit limit_{};
};

}  // namespace

TEST_CASE("arena: a thread that cannot be started beside others is an exception, and ends with exit code 3") {
    Exit exit = Exit::done;
    try {
        const RoomForTwo room;
        CpuDevice device(8);
        const Arena arena(device, {std::int64_t{64} << 20, 0, 0}, "a test", 0, 8);
    } catch (const std::exception& e) {
        exit = failure_of(e).exit;
    }
    CHECK(exit == Exit::no_memory);
}

TEST_CASE("arena: zero, aligned, as large as asked; refused with rank, bytes and purpose") {
    CpuDevice device(2);
    const Arena arena(device, {(5 << 20) + 3, 4096, 0}, "a test", 0, 2);
    CHECK(arena.size(Tier::device) == (5 << 20) + 3);
    CHECK(reinterpret_cast<std::uintptr_t>(arena.data(Tier::device)) % (2 << 20) == 0);
    CHECK(std::all_of(arena.data(Tier::device), arena.data(Tier::device) + arena.size(Tier::device), [](std::byte b) { return b == std::byte{0}; }));
    arena.data(Tier::host)[4095] = std::byte{1};
    CHECK(arena.size(Tier::nvme) == 0);
    // A system that never gives huge pages says so, and one that does gave no more than there is.
    std::string setting;
    std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), setting);
    const auto huge = arena.huge_pages(Tier::device);
    CHECK(huge.has_value() == std::ifstream("/proc/self/smaps_rollup").good());
    if (huge) CHECK(*huge <= (setting.find("[never]") != std::string::npos ? 0 : arena.size(Tier::device)));
    if (huge) CHECK(*huge % (2 << 20) == 0);
    std::string message;
    try {
        CpuDevice full(1);
        const Arena huge(full, {std::int64_t{1} << 60, 0, 0}, "the weights of everything", 7, 1);
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::no_memory);
        message = e.what();
    }
    CHECK(message.find("rank 7") != std::string::npos);
    CHECK(message.find("1152921504606846976") != std::string::npos);
    CHECK(message.find("the weights of everything") != std::string::npos);
}

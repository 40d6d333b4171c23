#include "runtime/tasks.hpp"

#include "base/error.hpp"
#include "ir/table.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace quadrille {
namespace {

Category category_of(Kind k) {
    switch (k) {
        case Kind::sum_squares: case Kind::adamw: case Kind::sgd: case Kind::retain: return Category::optimizer;
        case Kind::compress: case Kind::decompress: return Category::compression;
        case Kind::load: return Category::data;
        default: return Category::compute;
    }
}

}  // namespace

Tasks::Tasks(const Program& program, int rank, Engine& engine, Arena& arena, const ExecutorOptions& options)
    : program_(program), at_(program.grid().coordinate(rank)), arena_(arena), options_(options), lists_(*program.tables, at_, arena.device()),
      tasks_(program.ops.size()), meter_(program, at_) {
    require(at_[Axis::pp] == program.coordinate, "runtime: this program is another pp coordinate's");
    for (std::size_t t = 0; t < tier_count; ++t)  // staging may lie elsewhere: whoever uses it checks its size
        require(program.peaks[t].arena - program.staging[t] <= arena.size(static_cast<Tier>(t)),
                "runtime: the arena is smaller than the program needs");
    make_groups(engine);
    std::vector<Waits> waits = derive_waits(program, at_);
    at_end_ = std::move(waits.back().before);
    for (std::int32_t i = 0; i < count(); ++i) {
        tasks_[static_cast<std::size_t>(i)].waits = std::move(waits[static_cast<std::size_t>(i)]);
        bind(i, engine);
    }
    meter_.hold(Tier::host, Book::buffers, options.snapshot);
    memory_ = meter_.peaks();
    if (options.poison) find_dying();
}

std::byte* Tasks::place(TensorId t) const {
    const ByteRange r = range_of(program_, at_, t);
    require(r.end <= arena_.size(r.tier), "runtime: a tensor lies beyond the arena");
    return r.tier == Tier::nvme ? nullptr : arena_.data(r.tier) + r.begin;
}

// All ranks make their groups in one order, that of (axes, size), so no two wait for each other.
void Tasks::make_groups(Engine& engine) {
    std::map<std::pair<unsigned, std::size_t>, std::vector<int>> groups;
    for (const Op& op : program_.ops) {
        if (op.queue != Queue::collective) continue;
        std::vector<int> members = members_of(program_, op, at_);
        groups.try_emplace({axes_of(program_, op).bits, members.size()}, members);
    }
    for (const auto& [key, members] : groups) meter_.hold(message_tier(program_), Book::buffers, engine.staging_bytes(engine.group(members)));
    const bool disk = std::any_of(program_.buffers.begin(), program_.buffers.end(), [](const Buffer& b) { return b.tier == Tier::nvme; });
    if (disk) meter_.hold(Tier::host, Book::buffers, static_cast<std::int64_t>(arena_.file().staging().size()));
}

void Tasks::bind(std::int32_t i, Engine& engine) {
    const Op& op = program_.ops[static_cast<std::size_t>(i)];
    Task& task = tasks_[static_cast<std::size_t>(i)];
    measure(i, op);
    if (asynchronous(op)) {
        if (op.kind == Kind::move) bind_tier_move(op, task);
        else {
            bind_move(op, task, engine);
            task.by_thread = reached(op);
        }
        task.move.origin.program = options_.number;
        task.move.origin.line = i;
        task.slot = static_cast<std::int32_t>(moves_++);
        task.does = task.waits.at_once ? Task::Does::move_at_once : Task::Does::move;
    } else {
        const ByteRange scratch = workspace_of(program_, op);
        Call call{program_, op, at_, {}, {}, scratch.empty() ? nullptr : arena_.data(scratch.tier) + scratch.begin, lists_,
                  arena_.device().kernels()};
        for (const TensorId t : program_.inputs(op)) call.in.push_back(place(t));
        for (const TensorId t : program_.outputs(op)) call.out.push_back(place(t));
        task.kernel = bind_kernel(call);
        task.category = category_of(op.kind);
        if (task.kernel) task.does = Task::Does::compute;
        task.by_host = op.kind == Kind::load && program_.attributes(op).input != Input::positions;
        if (task.by_host) task.by_thread = reached(op);
        const auto in_host = [&](TensorId t) { return program_.buffer(t).tier == Tier::host; };
        const auto in = program_.inputs(op), out = program_.outputs(op);
        task.in_host = std::any_of(in.begin(), in.end(), in_host) || std::any_of(out.begin(), out.end(), in_host);
        if (task.kernel && task.category == Category::compute) task.like = likes_.number(program_, op);
        if (op.kind == Kind::adamw || op.kind == Kind::sgd) {
            clip_ = program_.attributes(op).clip;
            stale_ = program_.attributes(op).stale;
        }
    }
    for (const TensorId t : program_.outputs(op)) {
        if (!program_.tells(t)) continue;
        task.scalar_from = reinterpret_cast<const double*>(place(t));
        task.scalar = t == program_.loss     ? &StepScalars::loss
                      : t == program_.norm   ? &StepScalars::norm2
                      : t == program_.tokens ? &StepScalars::tokens
                                             : &StepScalars::residual2;
    }
}

void Tasks::bind_move(const Op& op, Task& task, Engine& engine) {
    MovePlan plan = plan_move(program_, op, at_);
    task.move = std::move(plan.move);
    task.move.origin.axes = named_axes(program_.grid(), plan.axes);
    if (!plan.members.empty()) task.move.group = engine.group(plan.members);
    const std::string name = wire_name(program_.grid(), plan.axes);
    const auto account = std::find(options_.wire_axes.begin(), options_.wire_axes.end(), name);
    if (account == options_.wire_axes.end()) require(false, "runtime: no account for the wire axes " + name);
    task.account = static_cast<int>(account - options_.wire_axes.begin());
    for (std::size_t k = 0; k < task.move.segments.size(); ++k) {
        if (op.inputs > 0) task.move.segments[k].in = place(program_.inputs(op)[k]);
        if (op.outputs > 0) task.move.segments[k].out = place(program_.outputs(op)[k]);
    }
    task.category = exposed(plan.axes);
    task.receives = op.kind == Kind::recv;
    task.queue = 1 + task.account;
}

void Tasks::bind_tier_move(const Op& op, Task& task) {
    task.between_tiers = TierMove{op.queue, range_of(program_, at_, program_.inputs(op)[0]), range_of(program_, at_, program_.outputs(op)[0])};
    task.category = op.queue == Queue::disk ? Category::exposed_disk : Category::exposed_copy;
    task.queue = 1 + static_cast<int>(accounts() + tier_queue(op.queue));
}

// What the calling thread touches, or the engine for it.
Accesses Tasks::reached(const Op& op) const {
    Accesses touched = accesses(program_, op, at_);
    const auto near = [this](const ByteRange& r) { return r.tier == Tier::host || arena_.device().shares_memory(); };
    const bool all = std::all_of(touched.reads.begin(), touched.reads.end(), near) && std::all_of(touched.writes.begin(), touched.writes.end(), near);
    if (!all) require(false, fmt::format("runtime: {} wants memory that only the device reaches", label(program_, op)));
    return touched;
}

bool Tasks::between_tiers() const {
    return std::any_of(tasks_.begin(), tasks_.end(), [](const Task& t) { return t.between_tiers.has_value(); });
}

void Tasks::measure(std::int32_t i, const Op& op) {
    const std::int32_t done = asynchronous(op) && op.until >= 0 ? op.until : i + 1;
    const auto hand = [&](TensorId t) {
        const ByteRange r = range_of(program_, at_, t);
        meter_.touch(program_.tensor(t).buffer, r.begin, r.end, i, done);
    };
    for (const TensorId t : program_.inputs(op)) hand(t);
    for (const TensorId t : program_.outputs(op)) hand(t);
    const std::int64_t scratch = kernel_workspace(program_, op, arena_.device().kernels());
    if (scratch == 0) return;
    const ByteRange given = workspace_of(program_, op);
    require(given.end - given.begin >= scratch, "runtime: an op's workspace is smaller than its kernel needs");
    meter_.touch(op.workspace, given.begin, given.begin + scratch, i, done);
}

void Tasks::find_dying() {
    dying_.resize(program_.ops.size());
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
        const MemoryMeter::Use& use = meter_.use(static_cast<BufferId>(b));
        const auto dead = static_cast<std::size_t>(use.last + 1);
        const bool dies = use.first >= 0 && !program_.buffers[b].persistent && program_.buffers[b].tier != Tier::nvme;
        if (dies && dead < dying_.size()) dying_[dead].push_back(static_cast<BufferId>(b));
    }
}

void Tasks::poison_before(std::int32_t op) const {
    for (const BufferId b : dying_[static_cast<std::size_t>(op)]) {
        const MemoryMeter::Use& use = meter_.use(b);
        const Tier tier = program_.buffers[static_cast<std::size_t>(b)].tier;
        std::byte* const dead = arena_.data(tier) + use.begin;
        if (tier == Tier::device) arena_.device().poison(dead, use.end - use.begin);
        else std::memset(dead, 0xFF, static_cast<std::size_t>(use.end - use.begin));
    }
}

}  // namespace quadrille

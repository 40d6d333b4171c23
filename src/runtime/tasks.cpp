#include "runtime/tasks.hpp"

#include "base/error.hpp"

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

Tasks::Tasks(const Program& program, int rank, Engine& engine, Arena& arena, Kernels& kernels, const ExecutorOptions& options)
    : program_(program), at_(program.grid().coordinate(rank)), arena_(arena), kernels_(kernels), options_(options), lists_(*program.tables, at_),
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
    for (const auto& [key, members] : groups) meter_.hold(Tier::device, Book::buffers, engine.staging_bytes(engine.group(members)));
    const bool disk = std::any_of(program_.buffers.begin(), program_.buffers.end(), [](const Buffer& b) { return b.tier == Tier::nvme; });
    if (disk) meter_.hold(Tier::host, Book::buffers, static_cast<std::int64_t>(arena_.file().staging().size()));
}

void Tasks::bind(std::int32_t i, Engine& engine) {
    const Op& op = program_.ops[static_cast<std::size_t>(i)];
    Task& task = tasks_[static_cast<std::size_t>(i)];
    measure(i, op);
    if (asynchronous(op)) {
        if (op.kind == Kind::move) bind_tier_move(op, task);
        else bind_move(op, task, engine);
        task.move.origin.program = options_.number;
        task.move.origin.line = i;
        task.slot = static_cast<std::int32_t>(moves_++);
        task.does = task.waits.at_once ? Task::Does::move_at_once : Task::Does::move;
    } else {
        const ByteRange scratch = workspace_of(program_, op);
        Call call{program_, op, at_, {}, {}, scratch.empty() ? nullptr : arena_.data(scratch.tier) + scratch.begin, lists_,
                  kernels_};
        for (const TensorId t : program_.inputs(op)) call.in.push_back(place(t));
        for (const TensorId t : program_.outputs(op)) call.out.push_back(place(t));
        task.kernel = bind_kernel(call);
        task.category = category_of(op.kind);
        if (task.kernel) task.does = Task::Does::compute;
        if (task.kernel && task.category == Category::compute) task.like = likes_.number(program_, op);
        if (op.kind == Kind::adamw || op.kind == Kind::sgd) {
            clip_ = program_.attributes(op).clip;
            stale_ = program_.attributes(op).stale;
        }
    }
    if (op.kind == Kind::retain) task.residual2 = reinterpret_cast<const double*>(place(program_.outputs(op)[1]));
    for (const TensorId t : program_.outputs(op)) {
        if (t != program_.loss && t != program_.norm && t != program_.tokens) continue;
        task.scalar = t == program_.loss ? &StepScalars::loss : t == program_.norm ? &StepScalars::norm2 : &StepScalars::tokens;
        task.scalar_from = reinterpret_cast<const double*>(place(t));
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
    const std::int64_t scratch = kernel_workspace(program_, op, kernels_);
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
        std::memset(arena_.data(program_.buffers[static_cast<std::size_t>(b)].tier) + use.begin, 0xFF, static_cast<std::size_t>(use.end - use.begin));
    }
}

}  // namespace quadrille

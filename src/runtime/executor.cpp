#include "runtime/executor.hpp"

#include "ir/table.hpp"
#include "runtime/step_run.hpp"

#include <omp.h>

#include <algorithm>

namespace quadrille {

struct Executor::State {
    Tasks tasks;
    World& world;
    Engine& engine;
    ExecutorOptions options;
    int loss_rank;  // of the world: the one that tells the others, -1 where the program has no loss
    std::optional<Copies> copies = {};

    void run(StepRun& step);
};

Executor::Executor(const Program& program, World& world, Engine& engine, Arena& arena, const ExecutorOptions& options)
    : state_(new State{Tasks(program, world.rank(), engine, arena, options), world, engine, options,
                       static_cast<int>(world.max(program.loss >= 0 ? world.rank() : -1))}) {
    if (state_->tasks.between_tiers()) state_->copies.emplace(arena, engine);
}

Executor::~Executor() = default;

StepResult Executor::run(const StepInputs& inputs) {
    State& s = *state_;
    omp_set_num_threads(s.options.threads);
    StepRun step(s.tasks, s.engine, s.copies ? &*s.copies : nullptr, inputs);
    try {
        s.run(step);
        return step.finish(s.world, s.loss_rank);
    } catch (...) {  // what is in flight writes to the step and reads the tasks, and may wait for ranks that wait for this one
        s.engine.fail(std::current_exception());
        if (s.copies) s.copies->fail(std::current_exception());
        throw;
    }
}

void Executor::State::run(StepRun& step) {
    for (std::int32_t i = 0; i < tasks.count(); ++i) {
        const Task& task = tasks.at(i);
        for (const std::int32_t move : task.waits.before) step.wait_before(i, move);
        if (options.poison) step.poison_before(i);
        switch (task.does) {
            case Task::Does::compute: step.compute(i); break;
            case Task::Does::move: step.start(i); break;
            case Task::Does::move_at_once: step.move(i); break;
            case Task::Does::nothing: break;
        }
    }
    for (const std::int32_t move : tasks.in_flight_at_end()) step.wait(move);
}

std::vector<std::string> wire_axes(const Program& program) {
    std::vector<std::string> names;
    for (const Op& op : program.ops)
        if (asynchronous(op) && op.kind != Kind::move) names.push_back(wire_name(program.grid(), axes_of(program, op)));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::function<std::int64_t(const Program&, const Op&)> device_workspace(std::shared_ptr<const Kernels> kernels) {
    return [kernels = std::move(kernels)](const Program& program, const Op& op) { return kernel_workspace(program, op, *kernels); };
}

std::string label(const Program& program, const Op& op) {
    constexpr std::array<char, 4> parts = {'F', 'B', 'W', 'S'};
    const char part = parts[static_cast<std::size_t>(op.part)];
    std::string text = fmt::format("{} {} {}{}", part, program.tables->name(op.unit), row(op.kind).name, op.clone ? "~" : "");
    return op.microbatch < 0 ? text : text + fmt::format("@{}", op.microbatch);
}

}  // namespace quadrille

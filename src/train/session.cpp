#include "train/session.hpp"

#include "compile/verify.hpp"
#include "config/load.hpp"
#include "cpu/gemm.hpp"
#include "plan/plan.hpp"
#include "train/agree.hpp"
#include "train/machine.hpp"

#include <omp.h>

#include <algorithm>
#include <set>

namespace quadrille {

Session::Session(World& w, const Arguments& arguments) : world(w) {
    read_input(arguments);
    grid = grid_of(config);
    coordinate = grid.coordinate(world.rank());
    together(world, [&] { data = open_data(config); });
    compile_programs();
    together(world, [&] { check_memory(); });
    const std::string replaced = on_first_rank(world, [&] { return check_output(config.output.directory, config.output.overwrite, to_yaml(config)); });
    if (!replaced.empty()) warnings.push_back(replaced);
    on_first_rank(world, [&] { output_lock_ = create_output(config.output.directory); return std::string(); });
    describe(arguments);
    take_memory();
}

void Session::read_input(const Arguments& arguments) {
    Job job;
    job.ranks = world.size();
    job.ranks_per_node = static_cast<int>(world.max(world.node_size()));
    job.cpus = world.cpus();
    job.memory_available = world.min(memory_available());
    job.planning = false;
    const std::string text = on_first_rank(world, [&] { return to_yaml(load_config(arguments.input, arguments.overrides, job, &warnings)); });
    config = parse_resolved(text);
    omp_set_num_threads(config.device.threads);
}

void Session::compile_programs() {
    const int threads = config.device.threads;
    const Workspace workspace = [threads](const Program& p, const Op& op) { return device_workspace(p, op, threads); };
    together(world, [&] {
        try {
            training = compile(config, Purpose::training, workspace);
            if (config.evaluation.interval > 0 && data.evaluation) evaluation = compile(config, Purpose::evaluation, workspace);
        } catch (const TypingError& e) {
            throw Error(Exit::refused, std::string("the model does not fit the grid: ") + e.what());
        }
    });
    on_first_rank(world, [&] {
        for (const Compiled* c : {&training, evaluation ? &*evaluation : nullptr}) {
            if (!c) continue;
            const Compiled one = compile(serial(config), c == &training ? Purpose::training : Purpose::evaluation, {});
            const Faults faults = verify(c->programs, one.programs[0]);
            require(faults.empty(), faults.empty() ? "" : "the compiled program is unsound: " + text(c->programs, faults[0]));
        }
        return std::string();
    });
    std::set<std::string> axes;
    for (const Compiled* c : {&training, evaluation ? &*evaluation : nullptr})
        for (std::size_t i = 0; c && i < c->programs.size(); ++i)
            for (const std::string& a : quadrille::wire_axes(c->programs[i])) axes.insert(a);
    wire_axes.assign(axes.begin(), axes.end());
}

void Session::check_memory() const {
    const std::int64_t limit = config.device.memory_limit;
    for (const Program* p : {&program(), evaluation_program()})
        if (limit > 0 && p && p->peaks[0].arena > limit) throw Error(Exit::no_memory, does_not_fit(*p, limit, world.rank()));
}

void Session::describe(const Arguments& arguments) {
    record.config_yaml = to_yaml(config);
    record.command = arguments.command;
    record.start_time = utc_now();
    record.environment = host_environment();
    record.environment["mpi"] = World::library();
    record.environment["device"] = "cpu";
    record.environment["blas"] = matrix_library();
    record.environment["threads"] = std::to_string(config.device.threads);
    record.hosts = world.gather(world.host());
    record.wire_axes = wire_axes;
    for (std::int64_t r = 0; r < grid.ranks(); ++r) {
        const Coordinate c = grid.coordinate(r);
        record.coordinates.push_back({grid.position(c, data_axes), grid.position(c, tensor_axes), c[Axis::pp], c[Axis::sp]});
        const Program& p = training.programs[static_cast<std::size_t>(c[Axis::pp])];
        const Program* e = evaluation ? &evaluation->programs[static_cast<std::size_t>(c[Axis::pp])] : nullptr;
        for (std::size_t t = 0; t < tier_count; ++t) {
            const TierPeak& peak = higher_peak(p.peaks[t], e ? &e->peaks[t] : nullptr);
            record.predicted_peak.insert(record.predicted_peak.end(), peak.books.begin(), peak.books.end());
        }
        const auto wire = wire_bytes(p, c);
        for (const std::string& axis : wire_axes) {
            const auto it = wire.find(axis);
            record.wire_predicted.push_back(it == wire.end() ? 0 : it->second);
        }
    }
    record.model_flops = model_flops(config);
    record.hardware_flops = hardware_flops(training, grid);
    for (const std::string& line : data.description) notes.push_back(line);
    for (const std::string& line : data.warnings) warnings.push_back(line);
}

void Session::take_memory() {
    std::array<std::int64_t, tier_count> bytes{};
    for (std::size_t t = 0; t < tier_count; ++t) {
        bytes[t] = program().peaks[t].arena;
        if (const Program* e = evaluation_program()) bytes[t] = std::max(bytes[t], e->peaks[t].arena);
    }
    // Alone in this: what follows is collective, and no rank may be left waiting in it.
    together(world, [&] { arena_.emplace(bytes, "weights, gradients, optimizer state and activations", world.rank(), config.device.threads); });
    EngineOptions engine;
    engine.max_count = config.comm.max_count;
    engine.compute_threads = config.device.threads;
    engine.axes = static_cast<int>(std::max<std::size_t>(wire_axes.size(), 1));
    engine_.emplace(world, engine);
    ExecutorOptions options;
    options.threads = config.device.threads;
    options.wire_axes = wire_axes;
    train_.emplace(program(), world, *engine_, *arena_, options);
    if (evaluation) evaluate_.emplace(*evaluation_program(), world, *engine_, *arena_, options);
    initialize(program(), coordinate, *arena_, config.train.seed, config.device.threads);
}

SequenceBlock Session::sequences() const {
    return {config.grid.dp, grid.position(coordinate, data_axes), config.train.micro_batch_size, config.train.gradient_accumulation_steps};
}

}  // namespace quadrille

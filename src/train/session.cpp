#include "train/session.hpp"

#include "base/format.hpp"
#include "checkpoint/state_tensors.hpp"
#include "comm/agree.hpp"
#include "compile/verify.hpp"
#include "config/difference.hpp"
#include "cpu/kernels.hpp"
#include "ir/print.hpp"
#include "ir/table.hpp"
#include "plan/suggest.hpp"
#include "train/collective_times.hpp"
#include "train/collectives.hpp"
#include "train/device.hpp"
#include "train/machine.hpp"
#include "train/same_data.hpp"
#include "train/saves.hpp"
#include "train/settle.hpp"
#include "train/stop.hpp"

#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <set>

namespace quadrille {
namespace {

// The engine's progress thread, the loader, the watchdog and saves behind training, beside the OpenMP team and the thread of signals, which is there.
constexpr int own_threads = 4;
constexpr int training_number = 0, evaluation_number = 1;  // of the programs

OutputUse output_use(const Config& config, const Start& start) {
    OutputUse use;
    use.overwrite = config.output.overwrite;
    use.resumes = start.resumes;
    use.own = start.own;
    use.same_model = [&config](const std::string& former) {
        const std::vector<Difference> all = differences(former, config);
        return std::none_of(all.begin(), all.end(), [](const Difference& d) { return d.must_match; });
    };
    return use;
}

}  // namespace

Session::Session(World& w, const Arguments& arguments) : world(w) {
    read_input(arguments);
    start = find_start(world, config);
    settle_choices();
    note_start(start, config);
    grid = grid_of(config);
    coordinate = grid.coordinate(world.rank());
    together(world, [&] { data = open_data(config, start.data()); });
    require_same_files(world, data.files);
    compile_programs();
    together(world, [&] { if (start.checkpoint) check_model(*start.checkpoint, program()); });
    check_memory(arguments);
    together(world, [&] { require_threads(config.device.threads - 1 + own_threads); });
    const std::string replaced = on_first_rank(world, [&] { return check_output(config.output.directory, output_use(config, start)); });
    if (!replaced.empty()) warnings.push_back(replaced);
    describe(arguments);
    take_memory();
    try {
        describe_engine();
        load_state();
        check_time(arguments);
        notes.insert(notes.begin(), start.notes.begin(), start.notes.end());
        // Last, so that a run that cannot begin leaves what an earlier one has left.
        on_first_rank(world, [&] { create_directories(); return std::string(); });
    } catch (const SharedError&) {
        throw;
    } catch (...) {  // this rank alone: the engine must not wait for the others where it ends
        engine_->fail(std::current_exception());
        throw;
    }
}

void Session::read_input(const Arguments& arguments) {
    job_.ranks = world.size();
    job_.ranks_per_node = static_cast<int>(world.max(world.node_size()));
    job_.cpus = static_cast<int>(world.min(world.cpus()));
    job_.cpu_sharers = static_cast<int>(world.max(world.cpu_sharers()));
    job_.memory_available = world.min(memory_available());
    job_.planning = false;
    const std::string text = on_first_rank(world, [&] { return to_yaml(load_config(arguments.input, arguments.overrides, job_, &warnings)); });
    config = parse_resolved(text);
    omp_set_num_threads(config.device.threads);
}

void Session::settle_choices() {
    Choices choices = settle(world, config, start.resumes ? start.checkpoint->point.config_yaml : "");
    config = std::move(choices.config);
    for (const Choice& c : choices.made) {
        notes.push_back(quadrille::text(c));
        record.choices[c.key] = fmt::format("{}, {}", c.value, c.reason);
    }
}

void Session::compile_programs() {
    const Workspace workspace = workspace_of(config);
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
            require_sound(c->programs, one.programs[0]);
        }
        return std::string();
    });
    std::set<std::string> axes;
    for (const Compiled* c : {&training, evaluation ? &*evaluation : nullptr})
        for (std::size_t i = 0; c && i < c->programs.size(); ++i)
            for (const std::string& a : quadrille::wire_axes(c->programs[i])) axes.insert(a);
    wire_axes.assign(axes.begin(), axes.end());
}

const Program& Session::fullest_program(Tier tier) const {
    const auto t = static_cast<std::size_t>(tier);
    const Program* e = evaluation_program();
    return e && e->peaks[t].arena > program().peaks[t].arena ? *e : program();
}

// The least of what may be taken here of this tier, below zero where other things alone take more than there is. Device and host tier share the
// machine's memory, and the ranks of a node do. Collective over these.
Budget Session::budget(Tier tier) const {
    Budget least{std::numeric_limits<std::int64_t>::max(), ""};
    const auto consider = [&](std::int64_t bytes, std::string by) {
        if (bytes < least.bytes) least = {bytes, std::move(by)};
    };
    if (tier == Tier::device && config.device.memory_limit > 0) consider(config.device.memory_limit, "device.memory_limit");
    if (tier == Tier::host && config.device.host_memory_limit > 0) consider(config.device.host_memory_limit, "device.host_memory_limit");
    const auto arena = [this](Tier t) { return fullest_program(t).peaks[static_cast<std::size_t>(t)].arena; };
    const std::int64_t mine = arena(tier), other = arena(tier == Tier::device ? Tier::host : Tier::device);
    const std::int64_t all = world.node_sum(mine + other);
    if (const std::int64_t available = memory_available(); available > 0)
        consider(available - (all - mine),
                 fmt::format("the {} available on {} less what its other ranks and tiers need", format_bytes(available), world.host()));
    if (const auto limit = process_limit(config.device.threads + own_threads))
        consider(limit->left - other, fmt::format("what {} leaves", limit->name));
    return least;
}

// Before anything is touched: a page too many would end the process without a word. The larger tier first: where both share what is too little, it
// is the one to speak of.
void Session::check_memory(const Arguments& arguments) {
    const auto most = [this](Tier t) { return world.max(fullest_program(t).peaks[static_cast<std::size_t>(t)].arena); };
    std::array tiers = {Tier::device, Tier::host};
    if (const std::int64_t device = most(Tier::device); most(Tier::host) > device) std::swap(tiers[0], tiers[1]);
    for (const Tier tier : tiers) check_tier(tier, arguments);
}

void Session::check_tier(Tier tier, const Arguments& arguments) {
    const Program& p = fullest_program(tier);
    const Budget limit = budget(tier);
    const std::int64_t needed = p.peaks[static_cast<std::size_t>(tier)].arena;
    const bool fits = needed == 0 || needed <= limit.bytes;
    if (world.all(fits)) return;
    const std::vector<std::string> ledgers = world.gather(fits ? std::string() : does_not_fit(p, tier, limit, world.rank()));
    const auto least_of = [this](const Budget& b) { return std::max<std::int64_t>(1, world.min(b.bytes)); };
    const std::int64_t least = least_of(limit), host = least_of(budget(Tier::host));
    const bool given = limit.by.starts_with("device.");  // else the machine itself is full, and its host memory too
    on_first_rank(world, [&]() -> std::string {
        const auto first = std::find_if(ledgers.begin(), ledgers.end(), [](const std::string& l) { return !l.empty(); });
        Config bound = config;
        bound.device.host_memory_limit = tier == Tier::host ? least : given ? host : 1;
        if (tier == Tier::device) bound.device.memory_limit = least;
        const Variation vary = [&](const std::vector<std::string>& more) {
            return settled_like(load_config(arguments.input, merged_overrides(arguments.overrides, more), job_), config);
        };
        const std::vector<Suggestion> found =
            arguments.input == "-" ? std::vector<Suggestion>{} : suggest(bound, workspace_of(config), vary, step_cost(training));
        std::string text = *first + advice(found);
        text.pop_back();  // whoever prints it ends the line
        throw Error(Exit::no_memory, text);
    });
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
    }
    predict();
    record.model_flops = model_flops(config);
    record.hardware_flops = hardware_flops(training, grid);
    for (const std::string& line : data.description) notes.push_back(line);
    if (config.comm.staleness > 0)
        notes.push_back("comm.staleness 1: an update uses the gradients of the step before, and so does the norm that is told; step 1 updates "
                        "nothing");
    for (const std::string& line : data.warnings) warnings.push_back(line);
    for (const std::string& line : start.warnings) warnings.push_back(line);
}

// Each rank goes through its own program alone and rank 0 gets all rows, so a rank has no more to do in a larger job.
void Session::predict() {
    const Program* e = evaluation_program();
    std::vector<std::int64_t> peaks, wires, uncompressed, copies;
    for (std::size_t t = 0; t < tier_count; ++t) {
        const TierPeak& peak = higher_peak(program().peaks[t], e ? &e->peaks[t] : nullptr);
        peaks.insert(peaks.end(), peak.books.begin(), peak.books.end());
    }
    const auto wire = wire_bytes(program(), coordinate);
    const auto whole = uncompressed_wire_bytes(program(), coordinate);
    for (const std::string& axis : wire_axes) {
        wires.push_back(wire.contains(axis) ? wire.at(axis) : 0);
        uncompressed.push_back(whole.contains(axis) ? whole.at(axis) : 0);
    }
    const auto moved = tier_bytes(program());
    for (const Queue queue : tier_queues) copies.push_back(moved.contains(queue) ? moved.at(queue) : 0);
    record.predicted_peak = world.gather(std::span<const std::int64_t>(peaks));
    record.wire_predicted = world.gather(std::span<const std::int64_t>(wires));
    record.wire_uncompressed = world.gather(std::span<const std::int64_t>(uncompressed));
    record.copies_predicted = world.gather(std::span<const std::int64_t>(copies));
}

void Session::take_memory() {
    // Both programs stand on one arena, and their messages pass through the same staging, at its end or beside it.
    std::array<std::int64_t, tier_count> bytes{};
    std::set<CollectiveGroup> groups;
    for (const Program* p : {&program(), evaluation_program()}) {
        if (!p) continue;
        for (std::size_t t = 0; t < tier_count; ++t) {
            const std::int64_t snapshot = static_cast<Tier>(t) == Tier::host ? p->snapshot : 0;
            bytes[t] = std::max(bytes[t], p->peaks[t].arena - p->staging[t] - snapshot);
        }
        groups.merge(collective_groups(*p));
    }
    EngineOptions engine = engine_options(config);
    engine.describe = [this](int rank, const Origin& origin) { return line(rank, origin); };
    if (engine.algorithm == Algorithm::automatic) {
        const CollectiveTimes measured = measured_collective_times(world);
        if (!measured.note.empty()) notes.push_back(measured.note);
        if (!measured.warning.empty()) warnings.push_back(measured.warning);
        engine.times = MeasuredTimes(measured.times);
    }
    const bool beside = shares_memory(engine.algorithm);  // windows cannot lie in the arena, whose pages are this rank's own
    const std::int64_t staging = beside ? 0 : static_cast<std::int64_t>(groups.size()) * Engine::staging_bytes(engine);
    const std::int64_t snapshot = program().snapshot, snapshot_at = aligned_up(bytes[1], nvme_alignment);
    if (snapshot > 0) bytes[1] = snapshot_at + snapshot;
    const Tier messages = message_tier(program());
    std::int64_t& of_messages = bytes[static_cast<std::size_t>(messages)];
    const std::int64_t staging_at = aligned_up(of_messages, buffer_alignment);
    if (staging > 0) of_messages = staging_at + staging;
    if (bytes[2] > 0) bytes[1] = aligned_up(bytes[1], nvme_alignment) + NvmeFile::staging_bytes(nvme_options(config));
    // Alone in this: what follows is collective, and no rank may be left waiting in it.
    together(world, [&] {
        constexpr std::string_view purpose = "weights, gradients, optimizer state and activations";
        device_ = device_of(config);
        arena_.emplace(*device_, std::array{bytes[0], bytes[1], std::int64_t{0}}, purpose, world.rank(), config.device.threads);
    });
    if (snapshot > 0) snapshot_ = {arena_->data(Tier::host) + snapshot_at, static_cast<std::size_t>(snapshot)};
    if (staging > 0) engine.staging = {arena_->data(messages) + staging_at, static_cast<std::size_t>(staging)};
    open_file(bytes[2]);
    make_executors(engine);
}

void Session::open_file(std::int64_t bytes) {
    std::string said;
    together(world, [&] {
        if (bytes == 0) return;  // a stage without anything there
        NvmeOptions file = nvme_options(config);
        file.bytes = bytes;
        arena_->open_file(file);
        said = fmt::format("{}", fmt::join(arena_->file().notes(), "\n"));
    });
    std::set<std::string> distinct;
    for (const std::string& of_rank : world.gather(said)) distinct.insert(of_rank);
    for (const std::string& note : distinct)
        if (!note.empty()) notes.push_back(note);
}

void Session::make_executors(const EngineOptions& engine) {
    engine_.emplace(world, engine);
    try {
        ExecutorOptions options;
        options.threads = config.device.threads;
        options.wire_axes = wire_axes;
        options.number = training_number;
        options.snapshot = std::ssize(snapshot_);
        train_.emplace(program(), world, *engine_, *arena_, options);
        options.number = evaluation_number;
        if (evaluation) evaluate_.emplace(*evaluation_program(), world, *engine_, *arena_, options);
        initialize(program(), coordinate, *arena_, config.train.seed, config.device.threads);
    } catch (...) {  // this rank alone: the engine must not wait for the others where it ends
        engine_->fail(std::current_exception());
        throw;
    }
}

void Session::describe_engine() {
    std::vector<const Program*> programs = {&program()};
    if (evaluation) programs.push_back(evaluation_program());
    const CollectivesTold told = tell_collectives(world, *engine_, programs, coordinate, config.comm.algorithm);
    notes.insert(notes.end(), told.notes.begin(), told.notes.end());
    warnings.insert(warnings.end(), told.warnings.begin(), told.warnings.end());
    record.wire_estimated = told.wire_estimated;
    const GroupMemory groups = engine_->memory();
    std::vector<std::int64_t> reserved, huge;
    for (const Tier t : {Tier::device, Tier::host, Tier::nvme}) {
        reserved.push_back(arena_->size(t) + (t == message_tier(program()) ? groups.own : 0));
        huge.push_back(arena_->huge_pages(t).value_or(RunRecord::not_told));
    }
    record.reserved = world.gather(std::span<const std::int64_t>(reserved));
    record.huge_pages = world.gather(std::span<const std::int64_t>(huge));
    record.shared = world.gather(std::span<const std::int64_t>(&groups.mapped, 1));
}

void Session::load_state() {
    if (!start.checkpoint) return;
    LoadSettings settings;
    settings.hints = config.checkpoint.hints;
    note_loaded(start, load(world, *start.checkpoint, program(), coordinate, *arena_, settings), program(), config);
}

// A job too short for one step would save what it began with, and be queued again, for ever.
void Session::check_time(const Arguments& arguments) {
    const std::int64_t bytes = bytes_of(state_tensors(world, Holdings(program(), coordinate, *arena_)));
    on_first_rank(world, [&] {
        const double left = seconds_left(arguments.begun, config.train.time_limit);
        const double needed = seconds_to_stop(config.checkpoint, bytes, start.load_seconds, 0, left);
        if (needed > left && start.point.step < config.train.steps) throw no_time(config.train.time_limit, left, needed);
        return std::string();
    });
}

void Session::create_directories() {
    const OutputUse use = output_use(config, start);
    output_lock_ = hold_output(config.output.directory);
    checkpoint_directory_ = std::make_unique<CheckpointDirectory>(config, start);
    clear_output(config.output.directory, use);  // where neither has been refused
    for (const std::string& said : clear_checkpoints(config, start)) warnings.push_back(said);
    const std::string folder = start.checkpoint ? start.checkpoint->folder.string() : "";
    if (use.goes_on()) record_place = continue_record(record, config.output.directory, start.point.step, folder);
    else record.continues = folder, record.continues_after = start.point.step;
    if (!record_place.note.empty()) notes.push_back(record_place.note);
}

std::string Session::line(int rank, const Origin& origin) const {
    const bool evaluates = origin.program == evaluation_number;
    const Compiled* compiled = origin.program == training_number ? &training : evaluates && evaluation ? &*evaluation : nullptr;
    const int stage = grid.coordinate(rank)[Axis::pp];
    if (!compiled || origin.line < 0 || static_cast<std::size_t>(stage) >= compiled->programs.size()) return {};
    const Program& p = compiled->programs[static_cast<std::size_t>(stage)];
    if (static_cast<std::size_t>(origin.line) >= p.ops.size()) return {};
    std::string place = evaluates ? "evaluation, " : "";
    if (grid.extent(Axis::pp) > 1) place += fmt::format("pp {}, ", stage);
    return place + "line" + text(p, static_cast<std::size_t>(origin.line));
}

SequenceBlock Session::sequences() const {
    return {config.grid.dp, grid.position(coordinate, data_axes), config.train.micro_batch_size, config.train.gradient_accumulation_steps};
}

}  // namespace quadrille

#include "comm/engine.hpp"

#include <algorithm>

#include "comm/engine_state.hpp"

namespace quadrille {
namespace {

void free_comm(MPI_Comm& comm) {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

}  // namespace

Engine::Engine(World& world, const EngineOptions& options) : state_(std::make_unique<State>(world, options)) {
    State& s = *state_;
    require(options.segment_bytes > 0 && options.segment_bytes % 64 == 0 && options.max_count >= 0,
            "engine options: segment_bytes a multiple of 64, max_count >= 0");
    const std::int64_t threads = std::int64_t{options.compute_threads} * world.cpu_sharers();
    if (threads > world.cpus()) s.waits_on = Backoff::Core::shared;
    if (threads + world.cpu_sharers() > world.cpus()) s.serves_on = Backoff::Core::background;
    if (options.algorithm == Algorithm::native) s.native_types.emplace();
    allow_short_sleeps();
    mpi_check(MPI_Comm_dup(world.comm(), &s.messages));
    mpi_check(MPI_Comm_set_errhandler(s.messages, MPI_ERRORS_RETURN));
    s.progress = std::thread([&s] { s.serve(); });
}

Engine::~Engine() {
    State& s = *state_;
    bool unfinished = false;
    {
        const auto lock = s.lock_as_caller();
        s.stopping = true;
        unfinished = s.in_flight > 0;
    }
    s.wake.notify_all();
    s.progress.join();
    if (unfinished) {
        s.world.abandon();
        // MPI may still write into what the moves own: leave it to the end of the process, which is near.
        static_cast<void>(state_.release());
        return;
    }
    for (State::Group& group : s.groups) {
        for (Place& place : group.places) free_comm(place.collectives);
        if (group.window && std::uncaught_exceptions() == 0) group.window->free();  // nobody to meet where this rank alone gives up
        for (MPI_Comm* comm : {&group.levels.within, &group.levels.across, &group.handshakes, &group.comm}) free_comm(*comm);
    }
    MPI_Comm_free(&s.messages);
}

int Engine::group(std::span<const int> ranks) {
    State& s = *state_;
    {
        const auto lock = s.lock_as_caller();
        for (std::size_t g = 0; g < s.groups.size(); ++g)
            if (std::equal(ranks.begin(), ranks.end(), s.groups[g].ranks.begin(), s.groups[g].ranks.end()))
                return static_cast<int>(g);
    }
    State::Group group;
    group.ranks.assign(ranks.begin(), ranks.end());
    const auto self = std::find(ranks.begin(), ranks.end(), s.world.rank());
    require(self != ranks.end(), "a rank makes only groups that it belongs to");
    group.me = static_cast<int>(self - ranks.begin());
    if (ranks.size() > 1) {
        MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
        mpi_check(MPI_Comm_group(s.world.comm(), &all));
        mpi_check(MPI_Group_incl(all, static_cast<int>(ranks.size()), group.ranks.data(), &some));
        mpi_check(MPI_Comm_create_group(s.world.comm(), some, 0, &group.comm));
        mpi_check(MPI_Comm_set_errhandler(group.comm, MPI_ERRORS_RETURN));
        mpi_check(MPI_Group_free(&some));
        mpi_check(MPI_Group_free(&all));
        s.choose_algorithm(group);
        s.open_places(group);
        if (s.options.check) {
            mpi_check(MPI_Comm_dup(group.comm, &group.handshakes));
            mpi_check(MPI_Comm_set_errhandler(group.handshakes, MPI_ERRORS_RETURN));
            group.lane.handshake.emplace(group.handshakes, group.ranks, group.me, s.options.describe);
        }
    }
    const auto lock = s.lock_as_caller();
    if (ranks.size() > 1) group.lane.evidence = s.world.evidence().lane(group_key(ranks), static_cast<std::int64_t>(ranks.size()));
    group.lane.group = static_cast<int>(s.groups.size());
    s.groups.push_back(std::move(group));
    return s.groups.back().lane.group;
}

std::int64_t Engine::staging_bytes(const EngineOptions& options) { 
    return (shares_memory(options.algorithm) ? SharedWindow::counters_bytes : 0) + active_per_group * Work::place_bytes(options);
}

std::int64_t Engine::staging_bytes(int group) const {
    const auto lock = state_->lock_as_caller();
    return state_->groups.at(static_cast<std::size_t>(group)).staging_bytes;
}

Ticket Engine::start(const Move& move, std::span<const Ticket> after, MoveTimes* times) {
    State& s = *state_;
    Ticket ticket;
    bool asleep = false;
    {
        const auto lock = s.lock_as_caller();
        asleep = s.in_flight == 0;
        ticket = s.guarded([&] { return s.submit(move, after, times); });
        asleep = asleep && s.in_flight > 0;
    }
    if (asleep) s.wake.notify_one();
    return ticket;
}

bool Engine::done(const Ticket& ticket) {
    if (State::over(ticket)) return true;
    state_->check_failure();
    return false;
}

void Engine::wait(const Ticket& ticket) {
    if (!State::over(ticket)) state_->wait_until([&ticket] { return State::over(ticket); });
}

void Engine::fail(std::exception_ptr why) {
    const auto lock = state_->lock_as_caller();
    state_->fail(std::move(why));
}

Evidence& Engine::evidence() { return state_->world.evidence(); }

void Engine::run(const Move& move, MoveTimes* times) {
    State& s = *state_;
    Ticket ticket;
    {
        const auto lock = s.lock_as_caller();
        ticket = s.guarded([&] { return s.submit(move, {}, times); });
    }
    wait(ticket);
}

}  // namespace quadrille

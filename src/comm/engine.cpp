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
    if (!world.spares_a_core(options.compute_threads)) s.serves_on = Backoff::Core::background;
    if (options.algorithm == Algorithm::native) s.native_types.emplace();
    if (shares_memory(options.algorithm)) s.shared_left = world.min(options.shared_room.value_or(SharedMemory::room() / 2) / world.node_size());
    allow_short_sleeps();
    mpi_check(MPI_Comm_dup(world.comm(), &s.messages));
    mpi_check(MPI_Comm_set_errhandler(s.messages, MPI_ERRORS_RETURN));
    s.progress = std::thread([&s] { s.serve(); });
}

Engine::~Engine() {
    State& s = *state_;
    bool in_order = false;
    {
        const auto lock = s.lock_as_caller();
        s.stopping = true;
        in_order = s.in_flight == 0 && !s.failure;
    }
    s.wake.notify_all();
    s.progress.join();
    if (!in_order) {
        s.world.abandon();
        // MPI may still write into what the moves own, and the others of a group may not come to give its memory back: leave all to the end of the
        // process, which is near.
        static_cast<void>(state_.release());
        return;
    }
    for (State::Group& group : s.groups) {
        for (Place& place : group.places) free_comm(place.collectives);
        group.window.reset();
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
        if (s.options.check) {
            mpi_check(MPI_Comm_dup(group.comm, &group.handshakes));
            mpi_check(MPI_Comm_set_errhandler(group.handshakes, MPI_ERRORS_RETURN));
            group.lane.handshake.emplace(group.handshakes, group.ranks, group.me, s.options.describe);
        }
        s.open_places(group);
    }
    const auto lock = s.lock_as_caller();
    if (ranks.size() > 1) group.lane.evidence = s.world.evidence().lane(group_key(ranks), static_cast<std::int64_t>(ranks.size()));
    group.lane.group = static_cast<int>(s.groups.size());
    s.groups.push_back(std::move(group));
    return s.groups.back().lane.group;
}

std::int64_t Engine::staging_bytes(const EngineOptions& options) {
    const std::int64_t bytes = Work::place_bytes(options);
    return shares_memory(options.algorithm) ? SharedWindow::part_bytes(active_per_group, bytes) : active_per_group * bytes;
}

std::int64_t Engine::staging_bytes(int group) const {
    const auto lock = state_->lock_as_caller();
    return state_->groups.at(static_cast<std::size_t>(group)).staging_bytes;
}

const Service& Engine::service(int group) const {
    const auto lock = state_->lock_as_caller();
    return state_->groups.at(static_cast<std::size_t>(group)).service;
}

GroupMemory Engine::memory() const {
    const auto lock = state_->lock_as_caller();
    GroupMemory sum;
    for (const State::Group& group : state_->groups) {
        const bool given = !group.window && !state_->options.staging.empty();
        if (!given) sum.own += group.staging_bytes;
        if (group.window) sum.mapped += (group.window->members() - 1) * group.staging_bytes;
    }
    return sum;
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
    if (!State::over(ticket)) state_->wait_until(state_->lock_as_caller(), [&ticket] { return State::over(ticket); });
}

void Engine::fail(std::exception_ptr why) {
    const auto lock = state_->lock_as_caller();
    state_->fail(std::move(why));
}

Evidence& Engine::evidence() { return state_->world.evidence(); }

void Engine::run(const Move& move, MoveTimes* times) {
    State& s = *state_;
    auto lock = s.lock_as_caller();
    const Ticket ticket = s.guarded([&] { return s.submit(move, {}, times); });
    s.wait_until(std::move(lock), [&ticket] { return State::over(ticket); });
}

}  // namespace quadrille

#include "comm/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/say.hpp"
#include "comm/evidence_pages.hpp"

namespace quadrille {
namespace {

constexpr int question_tag = 1, answer_tag = 2;
constexpr std::chrono::seconds time_to_abort{10};  // for MPI to end the job; then this process ends itself
constexpr double neighbour_interval = 1;           // seconds between looks

// The ranks that may speak for the job: 0, 1, 2, 4, ... and at last each itself, so that a silent node costs few waits.
int next_candidate(int candidate) { return candidate == 0 ? 1 : 2 * candidate; }

}  // namespace

Watchdog::Watchdog(World& world, double seconds, DescribeLine describe)
    : world_(world), seconds_(seconds), tick_(std::clamp(seconds / 50, 0.02, 1.0)), patience_(std::clamp(seconds / 5, 1.0, 20.0)),
      describe_(std::move(describe)) {
    require(seconds > 0, "a watchdog has some patience");
    mpi_check(MPI_Comm_dup(world.comm(), &comm_));
    mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    thread_ = std::thread([this] { serve(); });
}

Watchdog::~Watchdog() {
    world_.evidence().page().closed.store(1);
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
    // Nobody may ever take what is still under way, and MPI may read it until the process ends, which is near.
    if (!letters_.empty()) static_cast<void>(new std::list<Letter>(std::move(letters_)));
    MPI_Comm_free(&comm_);
}

void Watchdog::serve() {
    try {
        double last = now();
        std::unique_lock lock(mutex_);
        while (!wake_.wait_for(lock, std::chrono::duration<double>(tick_), [this] { return stopping_; })) {
            lock.unlock();
            const double elapsed = std::min(now() - last, 2 * tick_);  // not what it slept through, stopped or without a core
            last = now();
            awake_ += elapsed;
            still_ += elapsed;
            look();
            lock.lock();
        }
    } catch (const std::exception& e) {
        speak(fmt::format("rank {}: comm.watchdog: {}", world_.rank(), e.what()));
    }
}

void Watchdog::look() {
    EvidencePage& page = world_.evidence().page();
    const std::int64_t pulse = page.pulse.load(std::memory_order_relaxed);
    if (pulse != pulse_) still_ = 0;
    pulse_ = pulse;
    page.still.store(still_, std::memory_order_relaxed);
    listen();
    if (still_ < seconds_) stage_ = Stage::content;
    else if (awake_ >= again_) inquire();
    look_at_neighbour();
}

void Watchdog::listen() {
    letters_.remove_if([](Letter& letter) {
        int done = 0;
        return MPI_Test(&letter.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;  // an error: nobody will read it
    });
    for (int there = 1; there != 0;) {
        MPI_Status status;
        mpi_check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, &status));
        if (there == 0) return;
        if (status.MPI_TAG == question_tag) {
            std::int32_t about = 0;
            mpi_check(MPI_Recv(&about, sizeof about, MPI_BYTE, status.MPI_SOURCE, question_tag, comm_, MPI_STATUS_IGNORE));
            send(evidence_of(about), status.MPI_SOURCE, answer_tag);
        } else {
            RankEvidence told;
            mpi_check(MPI_Recv(&told, sizeof told, MPI_BYTE, status.MPI_SOURCE, answer_tag, comm_, MPI_STATUS_IGNORE));
            told.answers = told.rank == status.MPI_SOURCE;
            const auto asked = evidence_.find(told.rank);
            if (asked != evidence_.end() && !asked->second.answers) asked->second = told;
        }
    }
}

// ---- an inquiry: who speaks, then what all say, then what is said of those who do not answer ----
void Watchdog::inquire() {
    switch (stage_) {
        case Stage::content: return begin(Stage::finds_speaker);
        case Stage::finds_speaker: return find_speaker();
        case Stage::asks_all: return collect_from_all();
        case Stage::asks_neighbours: return collect_from_neighbours();
    }
}

void Watchdog::begin(Stage stage) {
    stage_ = stage;
    deadline_ = awake_ + patience_;
    if (stage == Stage::asks_neighbours) return;
    evidence_.clear();
    candidate_ = 0;
    if (stage == Stage::finds_speaker && world_.rank() > 0) return ask(candidate_, candidate_);
    stage_ = Stage::asks_all;
    for (int r = 0; r < world_.size(); ++r)
        if (r != world_.rank()) ask(r, r);
}

void Watchdog::find_speaker() {
    const RankEvidence& candidate = evidence_.at(candidate_);
    if (candidate.answers) {  // it speaks if it has stood still as long; else the job moves, and cannot have stood still before it has
        again_ = awake_ + (candidate.page.still < seconds_ ? seconds_ - candidate.page.still : 4 * patience_);
        stage_ = Stage::content;
    } else if (awake_ >= deadline_) {
        candidate_ = next_candidate(candidate_);
        if (candidate_ >= world_.rank()) return begin(Stage::asks_all);
        ask(candidate_, candidate_);
        deadline_ = awake_ + patience_;
    }
}

void Watchdog::collect_from_all() {
    evidence_[world_.rank()] = evidence_of(world_.rank());
    double least = seconds_;
    bool all = true;
    for (const auto& [rank, r] : evidence_) {
        if (r.answers) least = std::min(least, r.page.still);
        all = all && r.answers;
    }
    if (least < seconds_) {  // somebody gets on
        again_ = awake_ + seconds_ - least;
        stage_ = Stage::content;
        return;
    }
    if (!all && awake_ < deadline_) return;
    begin(Stage::asks_neighbours);
    std::map<int, int> speakers;  // by node: a rank that answers
    for (const auto& [rank, r] : evidence_)
        if (r.answers) speakers[world_.pages().node_of(rank)] = rank;
    for (auto& [rank, r] : evidence_) {
        if (r.answers) continue;
        const auto near = speakers.find(world_.pages().node_of(rank));
        if (world_.pages().of(rank) != nullptr) r = evidence_of(rank);
        else if (near != speakers.end()) ask(near->second, rank);
    }
    collect_from_neighbours();
}

void Watchdog::collect_from_neighbours() {
    std::vector<RankEvidence> all;
    for (const auto& [rank, r] : evidence_) all.push_back(r);
    const bool whole = std::all_of(all.begin(), all.end(), [](const RankEvidence& r) { return r.known; });
    if (!whole && awake_ < deadline_) return;
    if (std::any_of(all.begin(), all.end(), [this](const RankEvidence& r) { return waits(r, seconds_); }))
        speak(stall_report(all, still_, describe_));
    again_ = awake_ + seconds_;  // nobody waits for anybody
    stage_ = Stage::content;
}

// ---- letters ----
template <class Text>
void Watchdog::send(const Text& text, int rank, int tag) {
    Letter& letter = letters_.emplace_back();
    const auto bytes = std::as_bytes(std::span(&text, 1));
    letter.text.assign(bytes.begin(), bytes.end());
    const int rc = MPI_Isend(letter.text.data(), static_cast<int>(bytes.size()), MPI_BYTE, rank, tag, comm_, &letter.request);
    if (rc != MPI_SUCCESS) letters_.pop_back();  // what cannot be sent is not answered, which tells enough
}

void Watchdog::ask(int rank, std::int32_t about) {
    evidence_[about].rank = about;
    send(about, rank, question_tag);
}

RankEvidence Watchdog::evidence_of(int rank) const {
    RankEvidence e;
    e.rank = rank;
    const EvidencePage* page = world_.pages().of(rank);
    if (page == nullptr) return e;
    e.known = true;
    e.answers = rank == world_.rank();
    e.page = copy_of(*page);
    e.taken = now();
    const bool nameable = e.page.process_space == world_.evidence().page().process_space.load();
    if (nameable) e.state = process_state(e.page.process);
    world_.host().copy(e.host.data(), e.host.size() - 1);
    return e;
}

// ---- a rank that is gone ----
void Watchdog::look_at_neighbour() {
    const int rank = world_.pages().neighbour();
    if (rank == world_.rank() || awake_ < neighbour_looked_ + neighbour_interval) return;
    neighbour_looked_ = awake_;
    const EvidencePage& page = *world_.pages().of(rank);
    const std::int64_t space = page.process_space.load(), process = page.process.load();
    if (space == 0 || space != world_.evidence().page().process_space.load()) return;  // its id means nothing here
    const char state = process_state(process);
    const bool gone = state == '\0' || state == 'Z' || state == 'X';
    if (gone && neighbour_gone_ && page.closed.load() == 0)  // seen twice: not one that is just ending with the job
        speak(fmt::format("rank {} (process {} on {}) is gone without a word: killed, or crashed", rank, process, world_.host()));
    neighbour_gone_ = gone;
}

void Watchdog::speak(const std::string& text) {
    if (world_.speaks_first()) say(text);
    std::thread([] {
        std::this_thread::sleep_for(time_to_abort);
        std::_Exit(static_cast<int>(Exit::rank_failed));
    }).detach();
    world_.abort(Exit::rank_failed);
}

}  // namespace quadrille

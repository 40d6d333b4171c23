#include "comm/world.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "base/say.hpp"
#include "comm/evidence_pages.hpp"

namespace quadrille {
namespace {

// The set of CPUs this process may run on, as bytes. Empty where the system does not tell.
std::vector<unsigned char> affinity_mask() {
    std::vector<unsigned char> mask;
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        mask.resize(sizeof set);
        std::memcpy(mask.data(), &set, sizeof set);
    }
#endif
    return mask;
}

int bits_in(const std::vector<unsigned char>& mask) {
    int n = 0;
    for (const unsigned char byte : mask) n += __builtin_popcount(byte);
    return n;
}

}  // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

World::World(int* argc, char*** argv) {
    int provided = MPI_THREAD_SINGLE;
    mpi_check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided));
    if (provided != MPI_THREAD_MULTIPLE) refuse_threads(provided);
    mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    take(MPI_COMM_WORLD);
    find_node();
    find_cpus();
    measure_clocks();
    pages_ = std::make_unique<EvidencePages>(comm(), node_comm_);
    evidence_ = std::make_unique<Evidence>(pages_->mine());
    tell(*evidence_);
}

void World::refuse_threads(int provided) {
    const std::string name = library();
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        say(fmt::format("MPI_THREAD_MULTIPLE (level {}) is needed, but {} offers level {}", static_cast<int>(MPI_THREAD_MULTIPLE), name, provided));
    MPI_Barrier(MPI_COMM_WORLD);  // a launcher ends the job once one rank has: not before the first has spoken
    MPI_Finalize();
    throw Error(Exit::refused, "");
}

World::~World() {
    if (abandoned_) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(Exit::rank_failed));
    // A destructor has nobody to report to: an error while ending is of no further consequence.
    pages_.reset();
    if (node_comm_ != MPI_COMM_NULL) MPI_Comm_free(&node_comm_);
    release();
    MPI_Finalize();
}

std::string World::library() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string line(text.data(), static_cast<std::size_t>(std::max(length, 0)));
    line.resize(std::min(line.find('\n'), line.size()));
    line.resize(std::strlen(line.c_str()));
    return line;
}

bool World::speaks_first() const { return pages_->first().spoken.exchange(1) == 0; }

void World::abort(Exit code) const {
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    std::_Exit(static_cast<int>(code));
}

void World::find_node() {
    mpi_check(MPI_Comm_split_type(comm(), MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node_comm_));
    mpi_check(MPI_Comm_set_errhandler(node_comm_, MPI_ERRORS_RETURN));
    mpi_check(MPI_Comm_rank(node_comm_, &node_rank_));
    mpi_check(MPI_Comm_size(node_comm_, &node_size_));
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    mpi_check(MPI_Get_processor_name(name.data(), &length));
    host_.assign(name.data(), static_cast<std::size_t>(length));
}

void World::find_cpus() {
    std::vector<unsigned char> mine = affinity_mask();
    cpus_ = mine.empty() ? std::max(1, static_cast<int>(std::thread::hardware_concurrency())) : std::max(1, bits_in(mine));
    cpu_sharers_ = node_size_;
    int known = !mine.empty(), all_known = 0;
    mpi_check(MPI_Allreduce(&known, &all_known, 1, MPI_INT, MPI_MIN, node_comm_));
    if (!all_known) return;
    const auto bytes = static_cast<int>(mine.size());
    std::vector<unsigned char> masks(mine.size() * static_cast<std::size_t>(node_size_));
    mpi_check(MPI_Allgather(mine.data(), bytes, MPI_BYTE, masks.data(), bytes, MPI_BYTE, node_comm_));
    cpu_sharers_ = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(node_size_); ++r) {
        bool overlap = false;
        for (std::size_t i = 0; i < mine.size(); ++i) overlap |= (mine[i] & masks[r * mine.size() + i]) != 0;
        cpu_sharers_ += overlap;
    }
}

// Rank 0 asks each node's first rank for its time, some tens of times; the quickest answer is the best (Cristian 1989). The
// ranks of one node share a clock. An offset smaller than half a round trip cannot be told from none.
void World::measure_clocks() {
    constexpr int tries = 50, tag = 1;
    clock_offsets_.assign(static_cast<std::size_t>(size()), 0.0);
    std::vector<int> leads(static_cast<std::size_t>(size()));
    const int lead = node_rank_ == 0;
    mpi_check(MPI_Allgather(&lead, 1, MPI_INT, leads.data(), 1, MPI_INT, comm()));
    double offset = 0;
    for (int r = 1; r < size() && lead; ++r) {
        if (!leads[static_cast<std::size_t>(r)] || (rank() != 0 && rank() != r)) continue;
        double best = std::numeric_limits<double>::infinity(), found = 0;
        for (int k = 0; k < tries; ++k) {
            double theirs = now();
            if (rank() == r) {
                mpi_check(MPI_Recv(nullptr, 0, MPI_BYTE, 0, tag, comm(), MPI_STATUS_IGNORE));
                theirs = now();
                mpi_check(MPI_Send(&theirs, 1, MPI_DOUBLE, 0, tag, comm()));
                continue;
            }
            const double begin = now();
            mpi_check(MPI_Send(nullptr, 0, MPI_BYTE, r, tag, comm()));
            mpi_check(MPI_Recv(&theirs, 1, MPI_DOUBLE, r, tag, comm(), MPI_STATUS_IGNORE));
            const double end = now();
            if (end - begin < best) best = end - begin, found = (begin + end) / 2 - theirs;
        }
        if (rank() == 0) {
            if (std::abs(found) < best / 2) found = 0;
            mpi_check(MPI_Send(&found, 1, MPI_DOUBLE, r, tag, comm()));
        } else {
            mpi_check(MPI_Recv(&offset, 1, MPI_DOUBLE, 0, tag, comm(), MPI_STATUS_IGNORE));
        }
    }
    mpi_check(MPI_Bcast(&offset, 1, MPI_DOUBLE, 0, node_comm_));
    mpi_check(MPI_Allgather(&offset, 1, MPI_DOUBLE, clock_offsets_.data(), 1, MPI_DOUBLE, comm()));
}

std::int64_t World::node_sum(std::int64_t x) const {
    std::int64_t out = 0;
    mpi_check(MPI_Allreduce(&x, &out, 1, MPI_INT64_T, MPI_SUM, node_comm_));
    return out;
}

}  // namespace quadrille

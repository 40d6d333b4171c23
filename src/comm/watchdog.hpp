// Ends a job that stands still, with evidence instead of silence. Owns a thread of each rank and a communicator of its own.
//
// A job stands still when no rank has got on for `seconds`, and at least one has waited in a move between ranks (or in a blocking collective of
// all ranks) that long. Getting on is to begin or end an op, a portion of a message, a piece of a copy between tiers, a batch of data or a
// write of the record. So nothing that is merely slow is a stall: a pipeline's idling, an evaluation, a slow disk, a rank that computes
// while all others wait for it; only a single op (or read, or write) that takes longer than `seconds` is taken for one. The time is that in
// which the rank's watchdog was awake: a job that was suspended goes on as if nothing had been.
//
// While all is well it costs a look at a counter and one at its messages some times a second, and sends nothing. A rank that has stood
// still for `seconds` asks the ranks that may speak for the job, 0, 1, 2, 4, 8 and so on, one after the other, until one answers; that one has stood
// still as long or the job does not. The first rank that finds nobody below it alive asks all ranks for their evidence, the neighbours on
// the same node of those that do not answer for theirs, and prints what it all says: once per job. Then it ends the job with
// Exit::rank_failed, so a rank may be stopped, stuck, swapped out or dead, rank 0 too.
//
// A rank whose process is gone is noticed within seconds by its neighbour on the node, whatever the launcher makes of it; of those that follow
// it so, one after the other, only the first says why.
#pragma once
#include <mpi.h>

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/stall_report.hpp"
#include "comm/world.hpp"

namespace quadrille {

class Watchdog {
  public:
    // Collective over all ranks, as is the end; the world must outlive it. seconds > 0. `describe` is called by another thread.
    Watchdog(World& world, double seconds, DescribeLine describe);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    enum class Stage { content, finds_speaker, asks_all, asks_neighbours };
    // What is under way to somebody: MPI may read it until its request is complete.
    struct Letter {
        MPI_Request request = MPI_REQUEST_NULL;
        std::vector<std::byte> text;
    };

    void serve();
    void look();
    void listen();
    void inquire();
    void begin(Stage stage);
    void find_speaker();
    void collect_from_all();
    void collect_from_neighbours();
    template <class Text>
    void send(const Text& text, int rank, int tag);
    void ask(int rank, std::int32_t about);
    void look_at_neighbour();
    [[noreturn]] void speak(const std::string& text);
    RankEvidence evidence_of(int rank) const;  // of this node

    World& world_;
    const double seconds_, tick_, patience_;  // patience: how long an answer may take
    const DescribeLine describe_;
    MPI_Comm comm_ = MPI_COMM_NULL;

    // Of the thread alone. Times are seconds that it has been awake.
    double awake_ = 0, still_ = 0, again_ = 0, deadline_ = 0, neighbour_looked_ = 0;
    std::int64_t pulse_ = -1;
    bool neighbour_gone_ = false;
    Stage stage_ = Stage::content;
    int candidate_ = 0;
    std::map<int, RankEvidence> evidence_;  // of those asked about in this inquiry, by rank
    std::list<Letter> letters_;

    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace quadrille

// A program made ready to run on one rank: per op its kernel or its move with addresses, what it waits for, which category its
// time goes to. Made once. Private to the room.
#pragma once
#include "comm/evidence.hpp"
#include "runtime/copies.hpp"
#include "runtime/executor.hpp"
#include "runtime/kernels.hpp"
#include "runtime/memory_meter.hpp"
#include "runtime/moves.hpp"
#include "runtime/waits.hpp"

namespace quadrille {

// What the loop reads after a step, caught when it is made: its memory may go to another tensor once nobody reads it.
struct StepScalars { double loss = 0, norm2 = 0, tokens = 0, residual2 = 0; };

struct Task {
    enum class Does : std::uint8_t { nothing, compute, move, move_at_once };
    Does does = Does::nothing;
    Category category = Category::compute;  // of its own time, or of waiting for it
    bool receives = false;                  // waiting for it is idling until the sender began
    Kernel kernel;
    bool by_host = false;                   // the calling thread itself does it, on a device with queues too
    Accesses by_thread;                     // ... or hands it to the engine: what is touched
    bool in_host = false;                   // its kernel reads or writes memory of the host
    std::int32_t like = -1;                 // arithmetic: which ops do the same work (LikeOps); -1: none that is compared
    Move move;                              // between ranks
    int account = 0;                        // of the move: which wire axes its bytes count for, as ExecutorOptions lists them
    std::optional<TierMove> between_tiers;  // ... or between tiers of this one
    Waits waits;
    std::int32_t slot = -1;                 // among the program's moves
    double StepScalars::*scalar = nullptr;  // the op makes one of them, or a part of it
    const double* scalar_from = nullptr;
    int queue = 0;                          // as OpEvent numbers them
};

class Tasks {
  public:
    // Collective over the groups of the program's moves. Throws logic_error on a program that cannot run.
    Tasks(const Program& program, int rank, Engine& engine, Arena& arena, const ExecutorOptions& options);
    Tasks(const Tasks&) = delete;
    Tasks& operator=(const Tasks&) = delete;

    const Program& program() const { return program_; }
    std::int32_t count() const { return static_cast<std::int32_t>(program_.ops.size()); }
    const Task& at(std::int32_t op) const { return tasks_[static_cast<std::size_t>(op)]; }
    const std::vector<std::int32_t>& in_flight_at_end() const { return at_end_; }
    const std::array<BytesInUse, tier_count>& memory() const { return memory_; }  // at the high-water marks
    std::array<std::vector<BytesInUse>, tier_count> timeline() const { return meter_.timeline(); }
    std::size_t moves() const { return moves_; }
    bool between_tiers() const;  // whether there are such moves
    Device& device() const { return arena_.device(); }
    std::size_t accounts() const { return options_.wire_axes.size(); }
    std::size_t likes() const { return likes_.count(); }
    double clip() const { return clip_; }    // of the program's updates,
    bool stale() const { return stale_; }    // as is this
    std::int64_t origin(std::int32_t op) const { return packed(Origin{options_.number, op, {}}); }
    // Debug: what was used for the last time before this op becomes NaN.
    void poison_before(std::int32_t op) const;

  private:
    void bind(std::int32_t i, Engine& engine);
    void bind_move(const Op& op, Task& task, Engine& engine);
    void bind_tier_move(const Op& op, Task& task);
    void make_groups(Engine& engine);
    void measure(std::int32_t i, const Op& op);
    void find_dying();
    Accesses reached(const Op& op) const;
    std::byte* place(TensorId t) const;

    const Program& program_;
    Coordinate at_;
    Arena& arena_;
    ExecutorOptions options_;
    IndexLists lists_;
    std::vector<Task> tasks_;
    std::vector<std::int32_t> at_end_;
    LikeOps likes_;
    MemoryMeter meter_;
    std::array<BytesInUse, tier_count> memory_{};
    std::vector<std::vector<BufferId>> dying_;  // by the op before which it is dead; filled for poisoning only
    std::size_t moves_ = 0;
    double clip_ = 0;
    bool stale_ = false;
};

}  // namespace quadrille

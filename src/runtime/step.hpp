// What goes into a step and what comes out of it. Plain data.
#pragma once
#include "ir/op.hpp"
#include "runtime/overlap.hpp"
#include "runtime/time_ledger.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace quadrille {

// Where a rank's part of a microbatch's input goes: row-major [sequences, positions], i32, or u8 for the mask.
struct LoadRequest {
    Input input = Input::tokens;               // tokens, targets, mask or document_start
    std::int64_t microbatch = 0;
    std::span<const std::int64_t> sequences;   // their places in the microbatch (over all dp ranks)
    std::span<const std::int64_t> positions;   // in the sequence, in the order in which they stand here (zigzag jumps)
    void* to = nullptr;
};

struct StepInputs {
    std::int64_t step = 0;                     // from 0: dropout's key
    std::int64_t update = 0;                   // optimizer updates made so far: AdamW's correction is that of update + 1
    bool follows_a_step = true;                // whose gradients an update uses that is stale; else it has none
    std::uint64_t seed = 0;                    // of dropout
    double loss_scale = 1;                     // a power of two; for programs that scale the loss, which are fp16's
    double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
    std::function<void(const LoadRequest&)> load;
    bool trace = false;                        // fill StepResult::events
    bool trace_memory = false;                 // fill StepResult::timeline
};

// An op on its queue: 0 is the compute queue, 1 + i that of the moves over wire axes i, then the tier_queues. Seconds on this rank's now().
struct OpEvent {
    int queue = 0;
    std::int32_t op = 0;
    double begin = 0, end = 0;
};

// Of the moves over one set of axes: how long at least one was under way on this rank (for a receive from when its sender began), and how long the
// calling thread did nothing else than wait for them or hand them over.
struct WireSeconds { double busy = 0, exposed = 0; };

// Bytes in use on one tier, in all and book by book, from before this op on.
struct BytesInUse {
    std::int64_t bytes = 0;
    std::array<std::int64_t, book_count> books{};
    std::int32_t op = -1;
};

struct StepResult {
    // The same on every rank, whoever computed them. 0 where the program has no such thing (evaluation has no norm).
    double loss = 0, grad_norm = 0, clip_factor = 1;
    double residual2 = 0;                      // this rank's own: the squares of its residuals after the step
    std::int64_t tokens = 0;
    bool updated = false;                      // false: no update in the program, or none was made: the norm is not finite, or is of no step
    double seconds = 0;                        // wall time of this step on this rank = the sum of `time`
    Times time{};
    std::vector<std::int64_t> sent_bytes;      // by wire axes, as ExecutorOptions names them
    std::vector<WireSeconds> wire;             // likewise
    Beside beside;                             // of arithmetic and moves between ranks
    std::array<std::int64_t, tier_queues.size()> moved_bytes{};  // between tiers, by queue
    std::array<BytesInUse, tier_count> memory{};  // at each tier's high-water mark
    std::vector<OpEvent> events;
    std::array<std::vector<BytesInUse>, tier_count> timeline;  // each change of what is in use, in order of ops
};

}  // namespace quadrille

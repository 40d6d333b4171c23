// What an op is: its kind, its operands and where in the step it stands. The rules of each kind are in ir/table.hpp.
#pragma once
#include "ir/packing.hpp"
#include "ir/type.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace quadrille {

using TensorId = std::int32_t;
using TypeId = std::int32_t;
using NameId = std::int32_t;
using AttributesId = std::int32_t;
using BufferId = std::int32_t;

enum class Kind : std::uint8_t {
    // compute
    matmul, matmul_gelu, add, sum, embedding, embedding_dw, norm, residual_norm, norm_dx, norm_dw, gelu, gelu_dx, swiglu, swiglu_dx,
    dropout, rotary, scale, attention, attention_dx, cast, logit_max, logit_sums, logit_sums_dx, token_loss, token_loss_dx,
    count, reciprocal, scale_loss, accumulate, mean_loss, sum_squares, adamw, sgd, compress, decompress, retain, copy,
    // movement
    redistribute, send, recv, move,
    // input and storage
    load, zero, split, join,
};
constexpr int kind_count = static_cast<int>(Kind::join) + 1;

enum class Part : std::uint8_t { forward, backward_input, backward_weight, step };  // printed F, B, W, S
// stage: sends and receives between pp coordinates; copy_in and copy_out: between device and host memory; disk: between host memory and nvme
enum class Queue : std::uint8_t { compute, collective, stage, copy_in, copy_out, disk };
inline constexpr std::array<Queue, 3> tier_queues = {Queue::copy_in, Queue::copy_out, Queue::disk};
constexpr std::size_t tier_queue(Queue q) { return static_cast<std::size_t>(q) - static_cast<std::size_t>(tier_queues[0]); }  // its place among them
std::string_view name_of(Queue);

// What is loaded from the batch of the step (or, for positions, from the type's own index list).
enum class Input : std::uint8_t { tokens, targets, mask, positions, document_start };
std::string_view name_of(Input);

// What of an op does not change from microbatch to microbatch. Interned: equal attributes have one id. Fields that a kind does not use keep
// their default.
struct Attributes {
    std::string signature;          // matmul, add, sum: index letters, "bsh,fh->bsf"
    std::vector<TypeId> types;      // redistribute: the one type it goes to; load, recv, split, decompress: those of the outputs;
                                    // embedding_dw: the table's
    DType dtype = DType::f32;       // of the outputs where the rule leaves it open: weight gradients, cast
    std::int64_t stream = 0;        // dropout: which stream of random numbers
    double factor = 1;              // scale: what it multiplies by
    double rate = 0;                // dropout, attention: probability of dropping
    double eps = 0;                 // norm
    bool rms = false;               // norm: root mean square, no mean and no bias
    bool inverse = false;           // rotary: the backward direction
    bool unexpanded = false;        // attention over cut keys that compile/expand will turn into a ring's turns; never executed
    bool ring = false;              // attention: one turn of a ring
    bool documents = false;         // attention: the last of the inputs q, k, v, document_start is there
    bool carries = false;           // attention ring: running state is among the inputs
    double base = 0;                // rotary
    std::int64_t vocab = 0;         // logit ops: true vocabulary, below the padded one
    Input input = Input::tokens;    // load
    int peer = -1;                  // send, recv: pp coordinate
    int chunk = -1;                 // send, recv: the chunk whose result or gradient travels
    bool gradient = false;          // send, recv: backward in the pipeline
    int unit = -1;                  // join, sum_squares, update, compress, decompress, retain: index of the unit's flat buffer (Program::flats)
    AxisSet which;                  // sum_squares: parameters cut by exactly these tensor axes
    bool tied = false;              // join: the unit's gradient is a sum over the two ends of pp too
    int microbatches = 0;           // join, update, mean_loss: how many a complete sum covers
    Tier tier = Tier::device;       // move: the tier it goes to
    double clip = 0;                // update: clip the global norm at this; 0: never
    int loss_scale = 0;             // scale; update, of the gradient; compress, of the residual: by which power of the step's loss scale to multiply
    bool stale = false;             // update: by the gradients of the step before, of which the first step has none
    Packing packing;                // compress, decompress
    AxisSet over;                   // compress, decompress: the ranks along these exchange packets
    friend bool operator==(const Attributes&, const Attributes&) = default;
};

struct Op {
    Kind kind = Kind::matmul;
    Part part = Part::forward;
    Queue queue = Queue::compute;
    bool writes_sum = false;        // the outputs are running sums (weight gradients, losses)
    bool adds = false;              // ... and the last operands are their earlier versions
    bool clone = false;             // makes again for the backward pass what was made in the forward and not kept
    std::int8_t use = 0;            // of a running sum: which use of the parameter this contribution is
    std::int32_t microbatch = -1;   // -1: once per step
    std::int32_t action = -1;       // position in the pipeline's order; -1: outside
    NameId unit = 0;
    AttributesId attributes = 0;
    std::uint32_t first = 0;        // operands: Program::operands[first ...], inputs then outputs
    std::uint32_t inputs = 0, outputs = 0;
    std::int32_t until = -1;        // asynchronous ops: the op before which it must be done, its operands being occupied till then; -1: done at once
    BufferId workspace = -1;        // scratch memory of the kernel, for this op alone; -1: none
};

constexpr bool moves_between_ranks(const Op& op) { return op.queue == Queue::collective || op.queue == Queue::stage; }

}  // namespace quadrille

// A program: tensors, each defined once, and ops in issue order. Also the builder of programs.
//
// Versions of one storage (an accumulation, an update in place, a view) are different tensors in one buffer. A tensor is the
// `count` local elements of its type, `offset` elements from its buffer's start, plus this rank's equal slice along `slice_axes`.
#pragma once
#include "ir/tables.hpp"

#include <memory>
#include <optional>

namespace quadrille {

struct Tensor {
    TypeId type = 0;
    BufferId buffer = 0;
    std::int64_t offset = 0;
    AxisSet slice_axes;
    NameId name = 0;
    std::int32_t microbatch = -1;
};

// What a buffer holds of a unit's training state: its weights as the ops read them, their fp32 masters, AdamW's moments, what compressed
// gradients have left unsent, this rank's gradients of the step before where updates are stale, or the sum of the step's gradients, which alone does
// not outlive the step.
enum class StateKind : std::uint8_t { none, weight, master, m, v, residual, stale, gradient };
std::string_view name_of(StateKind);

// Storage. lay_out fills what it decides; the rest is known when the buffer is made.
struct Buffer {
    NameId name = 0;
    std::int32_t microbatch = -1;
    bool persistent = false;        // intact from step to step
    StateKind state = StateKind::none;
    std::int32_t unit = -1;         // of the state: position in Program::flats
    Tier tier = Tier::device;
    Book book = Book::activations;
    std::int64_t bytes = 0;         // lay_out: extent
    std::int64_t offset = -1;       // lay_out: bytes from the arena's start
    std::int32_t first = -1, last = -1;  // lay_out: the first and last op that occupies it
};

// One parameter.
enum class Init : std::uint8_t { normal, uniform, ones, zeros };
struct Parameter {
    std::string name;               // as in checkpoints: layers.0.attention.q.weight
    TypeId type = 0;                // of the weight that the ops read; the vocabulary dim may be padded
    std::vector<std::int64_t> shape;  // true global shape, without padding
    std::string unit;
    bool trained = true;            // else frozen: it has no gradient, no optimizer state and no master
    bool adapter = false;           // its unit has no ops of its own: the block that it adapts reads it
    bool decays = false;            // weight decay: matrices, adapters and embeddings only
    Init init = Init::normal;
    double init_std = 0;            // of normal; uniform lies between -init_bound and init_bound
    double init_bound = 0;
};

// A unit's parameters in one padded flat buffer, so that they move together. Lengths in elements of one rank.
struct FlatSegment { int parameter; std::int64_t offset, count; };
struct Flat {
    std::string unit;
    bool tied = false;              // lives on both ends of the pipeline
    std::vector<FlatSegment> segments;
    std::int64_t end = 0, length = 0;  // used; padded so that every ZeRO slice is the same whole number of blocks
};
constexpr std::int64_t flat_block = 1024;  // elements: slices are whole blocks, squares are summed block by block

// The peak of one tier: what lay_out found.
struct TierPeak {
    std::int64_t arena = 0;                          // extent in bytes
    std::array<std::int64_t, book_count> books{};    // live bytes at the high-water mark
    std::int64_t packing = 0;                        // arena - sum of the books
    std::int32_t op = -1;                            // where the mark stands
};

struct Where {
    Part part = Part::forward;
    NameId unit = 0;
    std::int32_t microbatch = -1, action = -1;
    bool clone = false;             // Op::clone; the outputs' names end in ~
};

class Program {
  public:
    explicit Program(std::shared_ptr<Tables> t) : tables(std::move(t)) {}

    std::shared_ptr<Tables> tables;
    int coordinate = 0;             // pp coordinate
    std::vector<Op> ops;
    std::vector<TensorId> operands;
    std::vector<Tensor> tensors;
    std::vector<Buffer> buffers;
    std::vector<Parameter> parameters;  // of the whole model, in one order for all coordinates
    std::vector<Flat> flats;            // of this coordinate
    std::array<TierPeak, tier_count> peaks{};
    // lay_out: the last bytes of a tier's arena: where messages lie (message_tier), what collectives pass through; in host memory, behind that, what
    // transfers of the nvme tier do.
    std::array<std::int64_t, tier_count> staging{};
    std::int64_t snapshot = 0;          // lay_out: bytes of host memory before its staging, for what this rank writes of a checkpoint
    TensorId loss = -1, norm = -1, tokens = -1;  // scalars the loop reads after the step; -1 where another coordinate has them
    std::vector<TensorId> residual_squares;      // likewise: of each residual after the step
    TensorId seed = -1;                 // a chunk's backward starts from this cotangent

    const Grid& grid() const { return tables->grid(); }
    const Tensor& tensor(TensorId t) const { return tensors[static_cast<std::size_t>(t)]; }
    const Buffer& buffer(TensorId t) const { return buffers[static_cast<std::size_t>(tensor(t).buffer)]; }
    const TensorType& type(TensorId t) const { return tables->type(tensor(t).type); }
    std::span<const TensorId> inputs(const Op& op) const { return {operands.data() + op.first, op.inputs}; }
    std::span<const TensorId> outputs(const Op& op) const { return {operands.data() + op.first + op.inputs, op.outputs}; }
    const Attributes& attributes(const Op& op) const { return tables->attributes(op.attributes); }
    // Where a Redistribute leads.
    const Placement& destination(const Op& op) const { return tables->type(attributes(op).types[0]).place; }
    std::string name(TensorId) const;
    // Whether the loop reads this scalar after the step.
    bool tells(TensorId) const;
    // It reads `now` from here on.
    void tell_instead(TensorId old, TensorId now);
    // The training state as the step finds it: tensors in persistent buffers that no op makes, in their order.
    std::vector<TensorId> initial_state() const;
    // That of a unit; -1 where the program has none.
    TensorId initial_state(StateKind, std::int32_t unit) const;
    // Where this coordinate has a parameter: unit and segment, both positions; none where another has it.
    struct At { std::size_t unit = 0, segment = 0; };
    std::optional<At> find(int parameter) const;

    // ---- building ----
    BufferId add_buffer(std::string_view name, std::int32_t microbatch, const TensorType&, bool persistent = false);
    // The buffer of a unit's state (not of none), named "W.layers.0" and so on: W weights, P masters, M and V moments, R the residual, S the step
    // before's gradients, G the sum of gradients.
    BufferId add_state(StateKind, std::int32_t unit, const TensorType&);
    // A tensor without an op: an input of the program, or state. In a buffer of its own unless `buffer` is given.
    TensorId declare(std::string_view name, const TensorType&, std::int32_t microbatch = -1, BufferId buffer = -1, std::int64_t offset = 0,
                     AxisSet slice = {});
    // Appends an op on these inputs; the types of its outputs follow from its rule. Outputs get buffers of their own, in `book`,
    // unless `storage` names tensors whose place they take (one per output; -1: a new buffer). Throws TypingError.
    struct Options {
        Book book = Book::activations;
        std::vector<TensorId> storage;     // the place of the outputs; empty: new buffers
        std::vector<std::string> names;    // of the outputs; empty: from unit, kind and number
        bool writes_sum = false, adds = false;
        int use = 0;
    };
    std::vector<TensorId> add(Kind, std::vector<TensorId> inputs, const Attributes&, Where, const Options&);
    std::vector<TensorId> add(Kind kind, std::vector<TensorId> inputs, const Attributes& a, Where where) {
        return add(kind, std::move(inputs), a, where, Options{});
    }
    // x at `to`: a Redistribute, or x itself if it is there already.
    TensorId to(TensorId x, const Placement& to, Where, const Options&);
    TensorId to(TensorId x, const Placement& p, Where where) { return to(x, p, where, Options{}); }
    // x in this tier: x itself if it is there, else by a move, or two through host memory. `o` is for what arrives; on the way it is in `buffers`.
    TensorId to_tier(TensorId x, Tier to, Where, const Options& o);
    // Appends an op on tensors that exist already, outputs included; no rule is applied.
    void append(Op op, std::span<const TensorId> inputs, std::span<const TensorId> outputs);
    // Gives an op operands, wherever in the program it is or will be.
    void set_operands(Op& op, std::span<const TensorId> inputs, std::span<const TensorId> outputs);

  private:
    std::int32_t numbered_ = 0;
};

}  // namespace quadrille

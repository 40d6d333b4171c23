// The op table: one row per kind, with its typing rule.
//
// The rule of nearly every kind is its index signature ("bsh,fh->bsf"), read per grid axis:
//   a letter is cut alike in every operand that has it, and one axis cuts at most one letter of an op;
//   a cut letter that is in an output cuts it; one that is in no output makes it Partial over its axes;
//   a Partial operand is allowed only where the op is linear, one at a time (additive kinds: all operands at once).
// Column, row and vocabulary parallelism and the gradients that need summing all follow from this one rule.
#pragma once
#include "ir/tables.hpp"

#include <set>
#include <utility>

namespace quadrille {

using Rule = std::vector<TensorType> (*)(Tables&, const Op&, const Attributes&, std::span<const TensorType> inputs);

struct Row {
    std::string_view name;
    std::string_view signature = "";  // "": in the attributes, or the kind has a rule of its own
    // Element types: a the activations' (f32, bf16 or f16, all alike), n the same or f64, i i32, m u8, s f32, d f64, g the attributes' dtype. The
    // last input letter repeats.
    std::string_view dtypes = "";
    std::uint8_t linear = 0;        // bit i: linear in operand i
    bool additive = false;          // linear in all operands together
    std::string_view whole = "";    // letters that no axis may cut
    bool max = false;               // pieces of a contracted letter combine by max, not by sum
    Rule rule = nullptr;
};

const Row& row(Kind);

// The output types by the kind's rule. Throws TypingError with the reason. Use Tables::infer, which remembers.
std::vector<TypeId> apply_rule(Tables&, const Op&, std::span<const TypeId> inputs);

// The index letters of an op: one string per input and output, "bsh" ...
struct Signature { std::vector<std::string> in, out; };
Signature parse_signature(std::string_view);

// Operands of attention, or of its gradient, without a ring's running results, which come last.
constexpr std::size_t attention_operands(Kind k, bool documents) { return (k == Kind::attention_dx ? 6u : 3u) + (documents ? 1u : 0u); }

// The queue of a move between these tiers.
constexpr Queue copy_queue(Tier from, Tier to) {
    if (from == Tier::nvme || to == Tier::nvme) return Queue::disk;
    return to == Tier::device ? Queue::copy_in : Queue::copy_out;
}

// What a Redistribute does, from the type it leaves to the placement it reaches: one pair of placements over one set of axes.
enum class Pair : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, ring_shift, slice, first_keeps };
std::string_view name_of(Pair);
constexpr bool moves_data(Pair p) { return p != Pair::slice && p != Pair::first_keeps; }
struct Change {
    Pair pair;
    AxisSet axes;
    int from_dim = -1, to_dim = -1;  // the dim that was cut, the dim that will be
    bool max = false;                // all_reduce by max
};
// Throws TypingError where the placements are equal or more than one pair would be needed.
Change change(const TensorType& from, const Placement& to);
class Program;
Change change(const Program&, const Op&);  // of a Redistribute in a program: all that it moves go the same way

// The groups of ranks that a program's collectives go over, those of one rank left out. Along pp a group takes all coordinates or the two
// ends, which its size tells.
struct CollectiveGroup {
    AxisSet axes;
    std::int64_t ranks = 1;
    friend bool operator<(const CollectiveGroup& a, const CollectiveGroup& b) {
        return std::pair(a.axes.bits, a.ranks) < std::pair(b.axes.bits, b.ranks);
    }
};
std::set<CollectiveGroup> collective_groups(const Program&);

// The memory that what moves between ranks is taken from and brought to: one for all of a program's moves (compile/verify.hpp).
Tier message_tier(const Program&);

}  // namespace quadrille

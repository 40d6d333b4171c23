// Sound programs broken in the ways people break them, one small change each. Edits leave the rest of the program consistent:
// indices of ops that others hold (Op::until) follow what they mean.
#pragma once
#include "base/random.hpp"
#include "ir/program.hpp"
#include "ir/table.hpp"

#include <functional>
#include <string>
#include <vector>

namespace quadrille::test {

class Random {
  public:
    explicit Random(std::uint64_t seed) : key_(random_key(seed)) {}
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_bits(key_, next_++) % n); }
    template <class T>
    const T& one_of(const std::vector<T>& v) {
        return v[below(v.size())];
    }

  private:
    std::uint64_t key_, next_ = 0;
};

// The op that a mutation works on.
struct Site {
    Program& p;
    std::size_t i;
    Random& random;

    Op& op() const { return p.ops[i]; }
    const Attributes& attributes() const { return p.attributes(op()); }
    std::vector<TensorId> in() const { return {p.inputs(op()).begin(), p.inputs(op()).end()}; }
    std::vector<TensorId> out() const { return {p.outputs(op()).begin(), p.outputs(op()).end()}; }
    TensorId& input(std::size_t k) const { return p.operands[static_cast<std::size_t>(op().first) + k]; }
    Tensor& tensor(TensorId t) const { return p.tensors[static_cast<std::size_t>(t)]; }
    Buffer& buffer(TensorId t) const { return p.buffers[static_cast<std::size_t>(tensor(t).buffer)]; }
    const std::string& unit() const { return p.tables->name(op().unit); }
};

using Applies = std::function<bool(const Program&, const Op&)>;  // a quick look at the op

struct MutationKind {
    const char* name;
    Applies applies;
    std::function<bool(const Site&)> mutate;  // false: there is nothing to break here, and nothing was changed
};

std::vector<MutationKind> move_mutations();     // messages, redistributes, rings
std::vector<MutationKind> sum_mutations();      // accumulations, counts, norms
std::vector<MutationKind> memory_mutations();   // the layout
std::vector<MutationKind> meaning_mutations();  // well typed, but another program
std::vector<MutationKind> zero_mutations();     // gathers and reductions of cut training state
std::vector<MutationKind> tier_mutations();     // moves between memories
std::vector<MutationKind> packet_mutations();   // compressed gradients

// ---- where ----
Applies of_kind(std::initializer_list<Kind>);
bool reads_something(const Program&, const Op&);
bool makes_something(const Program&, const Op&);

// ---- whole mutations that several lists have ----
bool drop(const Site&);
bool repeat(const Site&);      // made twice in a row
bool bypass(const Site&);      // without the op, readers of its results reading its first inputs
bool bypass_sum(const Site&);  // ... its last inputs: the earlier versions of the running sums that it adds to

// ---- edits ----
void erase_op(Program&, std::size_t i);
void insert_op(Program&, std::size_t i, const Op&);
void move_op(Program&, std::size_t from, std::size_t to);  // to: its index afterwards
void set_operands(Program&, Op&, const std::vector<TensorId>& in, const std::vector<TensorId>& out);
void rewire(Program&, std::size_t from, TensorId old,
            TensorId now);                 // readers from op `from` on, and the scalars that the loop reads
TensorId copy_tensor(Program&, TensorId);  // another tensor of the same type in the same place
template <class F>
void change_attributes(const Site& s, F change) {
    Attributes a = s.attributes();
    change(a);
    s.op().attributes = s.p.tables->intern(a);
}

}  // namespace quadrille::test

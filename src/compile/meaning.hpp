// What the result of an op means, as a number: of its kind, its attributes and its operands' numbers. Equal numbers mean equal values,
// wherever and in whatever pieces they lie.
//
// Numbers are 128-bit hashes; that of a sum is the wrapping sum of its terms', so that sums are multisets without being stored, and a sum of
// one is its term.
#pragma once
#include "base/random.hpp"
#include "ir/program.hpp"

#include <bit>
#include <span>
#include <string_view>

namespace quadrille {

struct Value {
    std::uint64_t a = 0, b = 0;  // zero: the empty sum
    friend bool operator==(Value, Value) = default;
    friend Value operator+(Value x, Value y) { return {x.a + y.a, x.b + y.b}; }
};

// The number of `what` and of all that is fed to it, in order.
class Hash {
  public:
    explicit Hash(std::string_view what) : v_{hash_text(what), mix64(hash_text(what) + 1)} {}
    Hash& operator<<(std::uint64_t x) {
        v_.a = mix64((v_.a ^ x) + 0x9E3779B97F4A7C15ull);
        v_.b = mix64((v_.b + x) ^ 0xC2B2AE3D27D4EB4Full);
        return *this;
    }
    Hash& operator<<(double x) { return *this << std::bit_cast<std::uint64_t>(x); }
    Hash& operator<<(Value x) { return *this << x.a << x.b; }
    Value value() const { return v_; }

  private:
    Value v_;
};

// The numbers of an op's results, from those of its inputs. Additions are totals, fused kinds mean what they are made of, a cast means its
// operand, and a running sum means what was added to it. Not for moves and not for flat buffers, which the op alone does not tell.
void number_results(const Program&, const Op&, std::span<const Value> in, std::span<Value> out);

}  // namespace quadrille

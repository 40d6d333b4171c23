// A pass over a program's ops that keeps most and replaces some: the ops are taken out, and put back or replaced one by one.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

class Rewrite {
  public:
    explicit Rewrite(Program& p) : program(p), old_(std::move(p.ops)) { p.ops.clear(); }
    Program& program;

    // The ops as they were. Their operands stay readable through Program::inputs while the rewrite goes on.
    const std::vector<Op>& old_ops() const { return old_; }
    const Attributes& attributes(const Op& op) const { return program.attributes(op); }

    // From here on, readers of `old` read `now`.
    void rename(TensorId old, TensorId now) {
        if (names_.size() <= static_cast<std::size_t>(old)) names_.resize(static_cast<std::size_t>(old) + 1, -1);
        names_[static_cast<std::size_t>(old)] = now;
    }
    TensorId renamed(TensorId t) const {
        const auto i = static_cast<std::size_t>(t);
        return i < names_.size() && names_[i] >= 0 ? names_[i] : t;
    }
    // Puts the op back, its inputs renamed.
    void keep(const Op& op) {
        for (std::uint32_t i = op.first; i < op.first + op.inputs; ++i) {
            TensorId& t = program.operands[i];
            t = renamed(t);
        }
        program.ops.push_back(op);
    }

  private:
    std::vector<Op> old_;
    std::vector<TensorId> names_;
};

}  // namespace quadrille

// The weights as a step's ops read them: views of each unit's flat buffer, where it is kept whole in device memory, else of a copy that is fetched
// in front of the first op that needs it. Internal to `place`; owns which ops share a copy, and so how often a unit is fetched.
#pragma once
#include "compile/homes.hpp"

#include <span>

namespace quadrille {

class Weights {
  public:
    // `ops` are those of the step, and outlive this; views of whole buffers are appended to its program at once. The ops of an action share a copy
    // of a unit. Of `kept` units, counted from the end of the forward pass backwards, it stays from a microbatch's forward pass to its backward
    // pass, and while it is there, other microbatches read it too.
    Weights(Step&, Homes&, const Model&, std::span<const Op> ops, int kept);

    // The parameter as ops[i] reads it. Appends what fetches its unit where no copy is there.
    TensorId read(int parameter, std::size_t i);

  private:
    struct Copy { std::vector<TensorId> views; std::size_t until = 0; };  // by segment; the last op that reads them

    void choose_kept(const Step&, int kept);
    void find_last_reads(const Step&);
    // Ops with the same number share what is fetched of the unit.
    int sharing(int u, const Op& op) const { return kept_[static_cast<std::size_t>(u)] ? op.microbatch : op.action; }
    std::vector<TensorId> split(int u, TensorId whole, const Where&);
    std::vector<TensorId> fetch(int u, const Where&);

    Program& p_;
    Homes& homes_;
    const Model& model_;
    const std::span<const Op> ops_;
    std::vector<bool> kept_;                              // by unit
    std::vector<Copy> copies_;                            // by unit
    std::map<std::pair<int, int>, std::size_t> last_read_;  // unit, sharing -> op
};

}  // namespace quadrille

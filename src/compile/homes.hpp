// Where the training state lives: each unit's parameters, optimizer state and gradients in flat buffers, cut as the ZeRO stage says.
// Internal to `place`. Declares the persistent buffers; emits no move.
//
// One copy of the state is spread over the ZeRO axes (shard and sp) as equal slices of each flat buffer. Stage 1 cuts the optimizer state,
// stage 2 the gradients too, stage 3 the weights too (Rajbhandari et al. 2020, section 5); what is not cut is whole on every rank. Offload
// puts any of them in host memory or on disk.
//
// Where gradients are compressed each rank keeps what it has left unsent of its own, a residual, in the tier of the optimizer state. It has the
// placement of what is compressed: whole, or, between copies, the rank's slice.
#pragma once
#include "compile/instantiate.hpp"
#include "config/compression.hpp"

#include <map>

namespace quadrille {

// A unit's tensors in the program. Masters, m and v exist where precision and optimizer need them; a frozen unit has weights alone.
struct UnitState {
    TensorId weights = -1, master = -1, m = -1, v = -1, residual = -1;
    TensorId stale = -1;        // this rank's gradients of the step before, where updates use those; they make room for the step's own
    BufferId gradient = -1;     // where gradients of all microbatches meet; -1 in a step without backward that keeps none for the next
    TensorId reduced = -1;      // the sum of the gradients so far, as it lies after its reduction
    TensorId squares = -1;      // the sum of its squares, where that was taken before it left the device
    TensorId unsent = -1;       // the residual as the step's compressed gradients have left it so far
};

Tier tier_of(OffloadTo);

class Homes {
  public:
    // Adds the flats and the state's buffers to the program of the step.
    Homes(Step&, const Model&, const Config&);

    int units() const { return static_cast<int>(units_.size()); }
    const UnitState& unit(int u) const { return units_[static_cast<std::size_t>(u)]; }
    UnitState& unit(int u) { return units_[static_cast<std::size_t>(u)]; }
    const Flat& flat(int u) const { return p_.flats[static_cast<std::size_t>(u)]; }
    // The parameters of a unit are alike in this.
    bool trained(int u) const { return first(u).trained; }
    bool adapters(int u) const { return first(u).adapter; }
    NameId name(int u) const { return p_.tables->intern(flat(u).unit); }

    struct At { int unit = 0, segment = 0; };
    At at(int parameter) const { return at_.at(parameter); }

    // How a unit's flat buffer of this kind is kept: cut along the ZeRO axes or whole, and in which memory.
    struct Kept {
        Cuts cut;
        Tier tier = Tier::device;
        bool at_hand() const { return cut.empty() && tier == Tier::device; }  // ops read and write it as it is
    };
    Kept weights, gradients, optimizer;
    // Where the update runs: where the optimizer state is, or in host memory if that is on disk.
    Tier working_tier() const { return optimizer.tier == Tier::device ? Tier::device : Tier::host; }
    // The cut over the ZeRO axes that exist here. Squares are summed by these slices at every stage.
    Cuts slices;

    // Compression of gradients: the ranks along these axes exchange packets. Of the copies where there are several, else all that hold the
    // unit; none where dp is 1.
    AxisSet exchanged;
    Packing packing;
    bool compressed(int u) const { return !exchanged.empty() && trained(u) && !sent_whole(config_.compression, flat(u).unit); }

    TensorType flat_type(int u, DType, Book, const Kept&) const;

  private:
    const Parameter& first(int u) const { return model_.parameters[static_cast<std::size_t>(flat(u).segments[0].parameter)]; }
    void add_flat(const std::string& unit, std::vector<int> indices);
    void declare_state(int u, bool training);
    TensorType residual_type(int u) const;
    TensorType stale_type(int u) const;

    Program& p_;
    const Model& model_;
    const Config& config_;
    std::vector<UnitState> units_;
    std::map<int, At> at_;  // parameter -> unit, segment
};

}  // namespace quadrille

// The part of the meaning check that compression adds: what packets leave unsent is a new version of the unit's residual. Each version must go into
// the unit's next packets, and the last be kept; packets are unpacked as they were packed. Residuals are checked against themselves, for the program
// for one rank has none. Internal to verify_meaning, which walks the programs and tells of each op.
#pragma once
#include "compile/meaning.hpp"
#include "compile/verify.hpp"

#include <map>
#include <utility>
#include <vector>

namespace quadrille {

using FlatValues = std::vector<Value>;  // what a flat buffer means: one value per segment

// The state before the step: that kind of each of the unit's parameters. Of a sum over pp the first coordinate's piece stands for the whole.
FlatValues before_the_step(const Program&, TensorId);

class Residuals {
  public:
    explicit Residuals(std::span<const Program> programs) : programs_(programs) {}

    // `at`: the op's place in the program. `given`: the residual it takes, or null. Returns what it leaves unsent.
    FlatValues compress(std::size_t program, const Op&, std::int32_t at, const FlatValues& gradient, const FlatValues* given);
    void decompress(std::size_t program, const Op&, std::int32_t at);
    // `before`: the residual that it replaces; whether the scalar that decides is the step's norm.
    void retain(std::size_t program, const Op&, std::int32_t at, const FlatValues& before, bool by_norm);
    // Tensor y is x in another place.
    void same(std::size_t program, TensorId x, TensorId y);
    // After the step: what a residual's buffer holds is the last version, or in a step without gradients the first. `blamed`: an op.
    void check_end(std::size_t program, int unit, const FlatValues& held, std::int32_t blamed);

    const Faults& faults() const { return faults_; }

  private:
    void say(std::size_t program, std::int32_t at, std::string reason);
    FlatValues& version(std::size_t program, int unit);

    std::span<const Program> programs_;
    std::map<std::pair<std::size_t, TensorId>, Packing> packed_;   // packets: how they were made
    std::map<std::pair<std::size_t, int>, FlatValues> version_;    // that a unit's next packets must use
    Faults faults_;
};

}  // namespace quadrille

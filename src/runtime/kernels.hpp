// From an op to the kernel that runs it: one switch over the kinds. Shapes, index lists, signatures and addresses are settled
// when the op is bound, once, so that running it is one call. No arithmetic here and no look at a tensor: that is the device's (kernels/kernels.hpp).
#pragma once
#include "kernels/kernels.hpp"
#include "runtime/index_lists.hpp"
#include "runtime/step.hpp"

#include <functional>
#include <vector>

namespace quadrille {

using Kernel = std::function<void(const StepInputs&)>;

struct Call {
    const Program& program;
    const Op& op;
    Coordinate at;
    std::vector<std::byte*> in, out;  // the operands' places
    std::byte* workspace = nullptr;
    IndexLists& lists;                // outlives the kernel, as do
    Kernels& kernels;

    const Attributes& attributes() const { return program.attributes(op); }
    TypeId in_type(std::size_t i) const { return program.tensor(program.inputs(op)[i]).type; }
    TypeId out_type(std::size_t i) const { return program.tensor(program.outputs(op)[i]).type; }
    const TensorType& in_tensor(std::size_t i) const { return program.tables->type(in_type(i)); }
    const TensorType& out_tensor(std::size_t i) const { return program.tables->type(out_type(i)); }
    std::array<std::int64_t, max_dims> in_shape(std::size_t i) const { return local_shape(program.grid(), in_tensor(i)); }
    std::int64_t in_count(std::size_t i) const { return program.tables->count(in_type(i)); }
    std::int64_t out_count(std::size_t i) const { return program.tables->count(out_type(i)); }
    std::size_t operands() const { return in.size() - (op.adds ? out.size() : 0); }  // inputs without the earlier versions of a sum
};

// The kernel of an op of the compute queue; empty where there is nothing to do (split, a slice that is a view).
// Throws logic_error on what no kernel can do: that is a mistake of the compiler.
Kernel bind_kernel(const Call& c);

// Scratch bytes of the op's kernel.
std::int64_t kernel_workspace(const Program& program, const Op& op, const Kernels& kernels);

}  // namespace quadrille

// The MPI library's names for our element types and operations.
#include "comm/native.hpp"
#include "comm/reduce.hpp"
#include "comm/world.hpp"

namespace quadrille {
namespace {

template <ReduceOp op, DType dtype>
void combine_as_we_do(void* in, void* inout, int* count, MPI_Datatype*) {
    combine(op, dtype, inout, in, inout, *count);
}

template <ReduceOp op, DType dtype>
MPI_Op make_op() {
    MPI_Op made = MPI_OP_NULL;
    mpi_check(MPI_Op_create(combine_as_we_do<op, dtype>, 1, &made));
    return made;
}

}  // namespace

NativeTypes::NativeTypes() {
    mpi_check(MPI_Type_contiguous(2, MPI_BYTE, &half_));
    mpi_check(MPI_Type_commit(&half_));
    ops_[{ReduceOp::sum, DType::bf16}] = make_op<ReduceOp::sum, DType::bf16>();
    ops_[{ReduceOp::sum, DType::f16}] = make_op<ReduceOp::sum, DType::f16>();
    ops_[{ReduceOp::max, DType::bf16}] = make_op<ReduceOp::max, DType::bf16>();
    ops_[{ReduceOp::max, DType::f16}] = make_op<ReduceOp::max, DType::f16>();
    // MPI_MAX may lose a NaN, which ours keeps.
    ops_[{ReduceOp::max, DType::f32}] = make_op<ReduceOp::max, DType::f32>();
    ops_[{ReduceOp::max, DType::f64}] = make_op<ReduceOp::max, DType::f64>();
}

NativeTypes::~NativeTypes() {
    for (auto& [of, op] : ops_) MPI_Op_free(&op);
    MPI_Type_free(&half_);
}

MPI_Datatype NativeTypes::type(DType dtype) const {
    switch (dtype) {
        case DType::f32: return MPI_FLOAT;
        case DType::f64: return MPI_DOUBLE;
        case DType::i32: return MPI_INT32_T;
        case DType::bf16:
        case DType::f16: return half_;
        case DType::u8: break;
    }
    return MPI_BYTE;
}

MPI_Op NativeTypes::op(ReduceOp op, DType dtype) const {
    const auto own = ops_.find({op, dtype});
    if (own != ops_.end()) return own->second;
    return op == ReduceOp::sum ? MPI_SUM : MPI_MAX;
}

}  // namespace quadrille

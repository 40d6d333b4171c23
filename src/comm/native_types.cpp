// The MPI library's names for our element types and operations.
#include "comm/native.hpp"
#include "comm/reduce.hpp"
#include "comm/world.hpp"

namespace quadrille {
namespace {

template <ReduceOp op, DType dtype>
void combine_halves(void* in, void* inout, int* count, MPI_Datatype*) {
    combine(op, dtype, inout, in, inout, *count);
}

template <DType dtype>
std::array<MPI_Op, 2> make_ops() {
    std::array<MPI_Op, 2> ops{};
    mpi_check(MPI_Op_create(combine_halves<ReduceOp::sum, dtype>, 1, &ops[static_cast<std::size_t>(ReduceOp::sum)]));
    mpi_check(MPI_Op_create(combine_halves<ReduceOp::max, dtype>, 1, &ops[static_cast<std::size_t>(ReduceOp::max)]));
    return ops;
}

}  // namespace

NativeTypes::NativeTypes() {
    mpi_check(MPI_Type_contiguous(2, MPI_BYTE, &half_));
    mpi_check(MPI_Type_commit(&half_));
    half_ops_ = {make_ops<DType::bf16>(), make_ops<DType::f16>()};
}

NativeTypes::~NativeTypes() {
    for (auto& ops : half_ops_)
        for (MPI_Op& op : ops) MPI_Op_free(&op);
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
    if (dtype == DType::bf16 || dtype == DType::f16) return half_ops_[dtype == DType::f16][static_cast<std::size_t>(op)];
    return op == ReduceOp::sum ? MPI_SUM : MPI_MAX;
}

}  // namespace quadrille

// The plain formula of every kind, in float64, on one rank's pieces.
#pragma once
#include "compile_interpreter.hpp"

namespace quadrille::test {

using IndexLists = std::array<std::vector<std::int64_t>, max_dims>;

// One rank's piece of a tensor, row-major, and the global indices of its elements along each dim.
struct Piece {
    const TensorType* type = nullptr;
    std::array<std::int64_t, max_dims> shape{1, 1, 1, 1};
    struct {
        const IndexLists* lists = nullptr;
        const std::vector<std::int64_t>& operator[](std::size_t d) const { return (*lists)[d]; }
    } index;
    std::vector<double> x;
};

struct KernelCall {
    const Program& program;
    const Op& op;
    Coordinate at;
    const Settings& settings;
    int step = 0;
    std::vector<Piece> in;   // without the earlier versions of a sum
    std::vector<Piece> out;  // shaped; `x` is to be filled

    const Attributes& attributes() const { return program.attributes(op); }
};

void compute(KernelCall&);
void attention(KernelCall&);
void flat(KernelCall&);  // sum_squares, updates, compress, decompress, retain
// What the batch holds at a position of a sequence of the step.
double loaded(const KernelCall&, Input, std::int64_t sample, std::int64_t position);
// The number in the step of the b-th local sequence: dim 0 holds those of one microbatch.
std::int64_t global_sample(const KernelCall&, const Piece&, std::int64_t b);

}  // namespace quadrille::test

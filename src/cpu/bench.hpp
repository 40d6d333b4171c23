// Measures what this machine can do: the rate of matrix products and of memory, on the calling thread's OpenMP team. Hands
// over rows and prints nothing. The ratios of tests/bench compare against these.
#pragma once
#include "ir/dtype.hpp"

#include <functional>
#include <string>

namespace quadrille {

struct BenchRow {
    std::string name = {};       // gemm, copy, ...
    std::string precision = {};  // fp32 | bf16
    std::string shape = {};      // "2048x768x3072 nn": m x n x k and which operands are transposed; for memory the bytes moved
    double seconds = 0.0;  // median of the repetitions
    double rate = 0.0;
    std::string unit = {};  // GFLOP/s | GB/s
};

using EachRow = std::function<void(const BenchRow&)>;  // called as soon as the row is measured

// Forward, input-gradient and weight-gradient products of a GPT-2 124M block and head over 2048 tokens, in both precisions.
void bench_gemm(const EachRow& each);

// FLOP/s of one product of these sizes, the median of five: some milliseconds where they are small.
double product_rate(std::int64_t m, std::int64_t n, std::int64_t k, DType);

// Copy, add and fill of buffers far larger than the caches. Rates count bytes read plus bytes written.
void bench_memory(const EachRow& each);

}  // namespace quadrille

// One op on every coordinate of a grid, without MPI: global operands are cut as their types say, the kernel runs on each rank's
// pieces, and the pieces of the outputs are put together again.
#pragma once
#include "base/random.hpp"
#include "compile/lay_out.hpp"
#include "cpu/device.hpp"
#include "ir/table.hpp"
#include "runtime/addresses.hpp"
#include "runtime/executor.hpp"
#include "runtime/kernels.hpp"
#include "runtime/moves.hpp"

#include <doctest.h>

#include <cstring>
#include <map>
#include <memory>

namespace quadrille::test {

using Values = std::vector<double>;
constexpr double loss_scale = 4096;  // of the step that is run

inline double read(const std::byte* p, DType t) {
    const auto as = [p]<class T>(T x) { std::memcpy(&x, p, sizeof x); return x; };
    switch (t) {
        case DType::f32: return as(float{});
        case DType::bf16: return static_cast<double>(static_cast<float>(as(bf16{})));
        case DType::f16: return static_cast<double>(static_cast<float>(as(f16{})));
        case DType::f64: return as(double{});
        case DType::i32: return as(std::int32_t{});
        case DType::u8: return as(std::uint8_t{});
    }
    return 0;
}

inline void write(std::byte* p, DType t, double x) {
    const auto put = [p](auto v) { std::memcpy(p, &v, sizeof v); };
    switch (t) {
        case DType::f32: put(static_cast<float>(x)); break;
        case DType::bf16: put(bf16(static_cast<float>(x))); break;
        case DType::f16: put(f16(static_cast<float>(x))); break;
        case DType::f64: put(x); break;
        case DType::i32: put(static_cast<std::int32_t>(x)); break;
        case DType::u8: put(static_cast<std::uint8_t>(x)); break;
    }
}

inline std::int64_t elements(const TensorType& t) {
    std::int64_t n = 1;
    for (int d = 0; d < t.dims; ++d) n *= t.shape[static_cast<std::size_t>(d)];
    return n;
}

// Deviates that bf16 and f16 hold exactly, but for tiny ones, so that all precisions start from the same numbers.
inline Values deviates(const TensorType& t, std::uint64_t key) {
    Values v(static_cast<std::size_t>(elements(t)));
    for (std::size_t i = 0; i < v.size(); ++i) {
        const bf16 x(static_cast<float>(random_normal(key, i)));
        v[i] = static_cast<double>(static_cast<float>(f16(static_cast<float>(x))));
    }
    return v;
}

using Copies = std::map<std::int64_t, Values>;
// All copies must have the same bits.
inline Values one_of(const Copies& copies) {
    bool equal = true;
    for (const auto& [at, values] : copies) equal = equal && values == copies.begin()->second;
    CHECK(equal);
    return copies.begin()->second;
}

struct Bench {
    explicit Bench(Grid grid) : tables(std::make_shared<Tables>(grid)), program(tables) {}

    std::shared_ptr<Tables> tables;
    Program program;
    CpuDevice device{2};
    std::vector<std::byte> memory;

    TensorId input(const TensorType& t) { return program.declare("x", t); }

    // Every buffer gets a place of its own.
    void place() {
        for (Buffer& b : program.buffers) b.persistent = true;
        lay_out(program, device_workspace(std::make_shared<CpuKernels>(2)));
        memory.assign(static_cast<std::size_t>(program.peaks[0].arena) + 64, std::byte{0xFF});
    }
    std::byte* base() { return memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64; }
    std::byte* at(const Coordinate& c, TensorId t) { return base() + range_of(program, c, t).begin; }

    // This rank's elements of a global tensor: what is Partial stands on the first rank along those axes.
    void set(const Coordinate& c, TensorId t, const Values& global) {
        const TensorType& type = program.type(t);
        bool keeps = true;
        for (const Axis a : type.place.partial_sum.list()) keeps = keeps && c[a] == 0;
        std::byte* to = at(c, t);
        for (const Extent& e : slice_of(program.grid(), type.placed({}), c, type, c))
            for (std::int64_t i = e.offset; i < e.offset + e.count; ++i, to += bytes_of(type.dtype))
                write(to, type.dtype, keeps ? global[static_cast<std::size_t>(i)] : 0.0);
    }

    // Adds this rank's piece to the global tensor: to the copy that the ranks with its place along the Replicated axes make together.
    void add(const Coordinate& c, TensorId t, Copies& copies) {
        const TensorType& type = program.type(t);
        const AxisSet replicated = AxisSet::of_bits(63) - type.place.cut_axes() - type.place.partial();
        Values& global = copies[program.grid().position(c, replicated)];
        const bool max = !type.place.partial_max.empty();
        global.resize(static_cast<std::size_t>(elements(type)), max ? -1e30 : 0.0);
        const std::byte* from = at(c, t);
        for (const Extent& e : slice_of(program.grid(), type.placed({}), c, type, c))
            for (std::int64_t i = e.offset; i < e.offset + e.count; ++i, from += bytes_of(type.dtype)) {
                double& x = global[static_cast<std::size_t>(i)];
                const double y = read(from, type.dtype);
                x = max ? std::max(x, y) : x + y;
            }
    }

    // Runs op `index` at c.
    void run(const Coordinate& c, std::size_t index, const StepInputs& step) {
        const Op& op = program.ops[index];
        IndexLists lists(*tables, c, device);
        const ByteRange scratch = workspace_of(program, op);
        Call call{program, op, c, {}, {}, scratch.empty() ? nullptr : base() + scratch.begin, lists, device.kernels()};
        for (const TensorId t : program.inputs(op)) call.in.push_back(at(c, t));
        for (const TensorId t : program.outputs(op)) call.out.push_back(at(c, t));
        if (const Kernel kernel = bind_kernel(call)) kernel(step);
    }
};

struct Case {
    Kind kind;
    Attributes attributes;
    std::vector<TensorType> inputs;
    std::vector<Values> values;
    std::int32_t microbatch = 1;
    bool adds = false;              // to earlier results, which are `earlier`
    std::vector<Values> earlier = {};
};

// The op's outputs on this grid, put together.
inline std::vector<Values> everywhere(const Grid& grid, const Case& k) {
    Bench b(grid);
    std::vector<TensorId> in;
    for (const TensorType& t : k.inputs) in.push_back(b.input(t));
    const Where where{Part::forward, b.tables->intern("unit"), k.microbatch, 0};
    Program::Options o;
    std::vector<TensorId> out;
    if (k.adds) {  // a first contribution, only for its place
        o.writes_sum = true;
        const auto first = b.program.add(k.kind, in, k.attributes, {Part::forward, 0, 0, 0}, o);
        b.program.ops.clear();
        std::vector<TensorId> all = in;
        all.insert(all.end(), first.begin(), first.end());
        o.adds = true;
        o.storage = first;
        out = b.program.add(k.kind, all, k.attributes, where, o);
    } else {
        out = b.program.add(k.kind, in, k.attributes, where);
    }
    b.place();
    std::vector<Copies> copies(out.size());
    StepInputs step;
    step.step = 3;
    step.seed = 5;
    step.loss_scale = loss_scale;
    for (std::int64_t r = 0; r < grid.ranks(); ++r) {
        const Coordinate c = grid.coordinate(r);
        for (std::size_t i = 0; i < in.size(); ++i) b.set(c, in[i], k.values[i]);
        for (std::size_t i = 0; k.adds && i < out.size(); ++i) b.set(c, out[i], k.earlier[i]);
        b.run(c, 0, step);
        for (std::size_t i = 0; i < out.size(); ++i) b.add(c, out[i], copies[i]);
    }
    std::vector<Values> results;
    for (const Copies& k : copies) results.push_back(one_of(k));
    return results;
}

inline Case on_one_rank(Case k) {
    for (TensorType& t : k.inputs) t = t.placed({});
    return k;
}

}  // namespace quadrille::test

// Whole parameters put together from what the ranks hold of them.
#pragma once
#include "comm/world.hpp"
#include "cpu/kernels.hpp"
#include "runtime/state.hpp"

#include <algorithm>
#include <bit>

namespace quadrille::test {

// What one rank holds of a parameter: the first elements and counts of its runs in turn, and the values of all of them.
struct Share {
    std::vector<std::int64_t> runs;
    std::vector<float> values;
};

inline Share own_share(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what) {
    Share own;
    for (const Piece& piece : pieces_of(training, at, arena, parameter, what)) {
        const std::size_t n = own.values.size();
        own.runs.insert(own.runs.end(), {piece.element, piece.count});
        own.values.resize(n + static_cast<std::size_t>(piece.count));
        std::vector<std::byte> near(static_cast<std::size_t>(piece.far ? piece.count * bytes_of(piece.dtype) : 0));
        if (piece.far) arena.device().read(near.data(), piece.data, std::ssize(near));
        CpuKernels(1).cast(piece.far ? near.data() : piece.data, piece.dtype, own.values.data() + n, DType::f32, piece.count);
    }
    return own;
}

// Writes what is not there yet; false where what is there already has other bits.
inline bool put(const Share& share, std::vector<float>& whole, std::vector<bool>& known) {
    bool equal = true;
    std::size_t at = 0;
    for (std::size_t i = 0; i < share.runs.size(); i += 2)
        for (std::int64_t k = 0; k < share.runs[i + 1]; ++k, ++at) {
            const auto e = static_cast<std::size_t>(share.runs[i] + k);
            if (known[e]) equal = equal && std::bit_cast<std::uint32_t>(whole[e]) == std::bit_cast<std::uint32_t>(share.values[at]);
            else whole[e] = share.values[at];
            known[e] = true;
        }
    return equal;
}

// The global value of training.parameters[parameter], in true shape and row-major, on rank 0; empty elsewhere. Collective over the world.
// `replicas_equal` is set on rank 0: whether all copies of every element have the same bits.
inline std::vector<float> gather_parameter(const Program& training, const World& world, const Arena& arena, int parameter, StateKind what,
                                           bool* replicas_equal = nullptr) {
    Share share = own_share(training, training.grid().coordinate(world.rank()), arena, parameter, what);
    const std::array<std::int64_t, 2> sizes = {std::ssize(share.runs), std::ssize(share.values)};
    const std::vector<std::int64_t> all = world.gather(sizes);
    if (world.rank() != 0) {
        mpi_check(MPI_Send(share.runs.data(), static_cast<int>(sizes[0]), MPI_INT64_T, 0, 0, world.comm()));
        mpi_check(MPI_Send(share.values.data(), static_cast<int>(sizes[1]), MPI_FLOAT, 0, 0, world.comm()));
        return {};
    }
    std::int64_t elements = 1;
    for (const std::int64_t n : training.parameters[static_cast<std::size_t>(parameter)].shape) elements *= n;
    std::vector<float> whole(static_cast<std::size_t>(elements));
    std::vector<bool> known(whole.size());
    bool equal = put(share, whole, known);
    for (int r = 1; r < world.size(); ++r) {
        const std::int64_t runs = all[2 * static_cast<std::size_t>(r)], values = all[2 * static_cast<std::size_t>(r) + 1];
        share.runs.resize(static_cast<std::size_t>(runs));
        share.values.resize(static_cast<std::size_t>(values));
        mpi_check(MPI_Recv(share.runs.data(), static_cast<int>(runs), MPI_INT64_T, r, 0, world.comm(), MPI_STATUS_IGNORE));
        mpi_check(MPI_Recv(share.values.data(), static_cast<int>(values), MPI_FLOAT, r, 0, world.comm(), MPI_STATUS_IGNORE));
        equal = put(share, whole, known) && equal;
    }
    if (replicas_equal) *replicas_equal = equal;
    require(std::find(known.begin(), known.end(), false) == known.end(), "elements of a parameter are on no rank");
    return whole;
}

// True if all copies of every parameter are bit-equal over the ranks that hold them. The same answer on all. Collective.
inline bool replicas_equal(const Program& training, const World& world, const Arena& arena) {
    bool all = true;
    for (std::size_t p = 0; p < training.parameters.size(); ++p) {
        bool equal = true;
        gather_parameter(training, world, arena, static_cast<int>(p), StateKind::weight, &equal);
        all = all && equal;
    }
    return world.all(all);
}

}  // namespace quadrille::test

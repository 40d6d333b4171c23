// The ranks of the interpreter: where they stand, and what their arenas hold of each tensor.
#pragma once
#include "compile_interpreter_arena.hpp"
#include "compile_interpreter_kernels.hpp"

namespace quadrille::test {

class Ranks {
  public:
    // State as it stands before the first step: weights and masters by formula, moments 0.
    Ranks(const std::vector<Program>&, const Settings&);

    const Program& program(std::size_t rank) const { return programs_[static_cast<std::size_t>(ranks_[rank][Axis::pp])]; }
    std::int64_t address(std::size_t rank, TensorId) const;
    // Where a buffer begins in its rank's arena: the tiers lie in it one behind the other.
    static std::int64_t begin(const Program&, const Buffer&);
    Piece shaped(std::size_t rank, TensorId t) { return of_type(rank, program(rank).tensors[static_cast<std::size_t>(t)].type); }
    // Throws where an element is not there.
    Piece read(std::size_t rank, TensorId);
    void write(std::size_t rank, TensorId, const std::vector<double>&);
    // fp32 masters by parameter, global and without padding. Throws where ranks that hold the same disagree.
    std::map<std::string, std::vector<double>> weights();
    // The row-major global number of the i-th element of a piece.
    static std::int64_t element(const Piece&, std::size_t i);

  protected:
    const std::vector<Program>& programs_;
    const Grid& grid_;
    const Settings& settings_;
    std::vector<Coordinate> ranks_;
    std::vector<std::vector<std::size_t>> here_;  // by pp coordinate
    std::vector<Arena> arenas_;

  private:
    Piece of_type(std::size_t rank, TypeId);
    void initialize(std::size_t rank);
    template <class F>
    void for_each_element(std::size_t rank, const Parameter&, F);

    // A rank's part of a unit's flat buffer: elements first .. first + count of it, from byte `offset` of the arena on.
    struct Home {
        std::int64_t offset, first, count;
        int size;
        bool has(std::int64_t element) const { return first <= element && element < first + count; }
        std::int64_t address(std::int64_t element) const { return offset + (element - first) * size; }
    };
    Home home(std::size_t rank, BufferId) const;
    void gather(std::size_t rank, const FlatSegment&, const Home&, std::vector<double>& all);

    std::map<std::pair<std::size_t, TypeId>, IndexLists> index_;
};

}  // namespace quadrille::test

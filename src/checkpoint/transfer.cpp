#include "checkpoint/transfer.hpp"

#include "base/error.hpp"
#include "checkpoint/boxes.hpp"

#include <algorithm>
#include <bit>

namespace quadrille {
namespace {

using namespace hdf5;

// One tensor's dataset, open, and its space in the file. Keeps other threads out of the library while it calls, and no longer.
class Dataset {
  public:
    Dataset(const OpenFile& file, const StoredTensor& tensor) : file_(file), tensor_(tensor) {
        const QuietHdf5 quiet;
        id_.emplace(own(H5Dopen2(file.id, tensor.path.c_str(), H5P_DEFAULT), H5Dclose, file.name, tensor.path + " is missing"));
        space_.emplace(H5Dget_space(*id_), H5Sclose);
    }
    ~Dataset() {
        const QuietHdf5 quiet;
        space_.reset();
        id_.reset();
    }
    Dataset(const Dataset&) = delete;
    Dataset& operator=(const Dataset&) = delete;

    // The call of a round: of these elements in their order, or of none.
    void write(const Extents& elements, const float* values) {
        const QuietHdf5 quiet;
        const Hdf5Id memory = select(elements);
        check(H5Dwrite(*id_, H5T_NATIVE_FLOAT, memory, *space_, file_.transfer, values), file_.name, tensor_.path + " cannot be written");
    }
    void read(const Extents& elements, float* values) {
        const QuietHdf5 quiet;
        const Hdf5Id memory = select(elements);
        check(H5Dread(*id_, H5T_NATIVE_FLOAT, memory, *space_, file_.transfer, values), file_.name, tensor_.path + " cannot be read");
    }

  private:
    Hdf5Id select(const Extents& elements) {
        H5Sselect_none(*space_);
        for (const Box& box : boxes_of(tensor_.shape, elements)) {
            const std::vector<hsize_t> start(box.start.begin(), box.start.end()), count(box.count.begin(), box.count.end());
            check(H5Sselect_hyperslab(*space_, H5S_SELECT_OR, start.data(), nullptr, count.data(), nullptr), file_.name,
                  tensor_.path + ": no such part");
        }
        Hdf5Id memory = space_of({static_cast<hsize_t>(std::max<std::int64_t>(1, total(elements)))});
        if (elements.empty()) H5Sselect_none(memory);
        return memory;
    }

    const OpenFile& file_;
    const StoredTensor& tensor_;
    std::optional<Hdf5Id> id_, space_;
};

// A rank that has failed calls on, with nothing, for the others' sake; its first failure is thrown at the end.
class FirstFailure {
  public:
    void attempt(const std::function<void()>& work) {
        try {
            work();
        } catch (const Error&) {
            if (!first_) first_ = std::current_exception();
        }
    }
    bool any() const { return first_ != nullptr; }
    void rethrow() const {
        if (first_) std::rethrow_exception(first_);
    }

  private:
    std::exception_ptr first_;
};

// call(tensor, dataset, begin, part, failure) for each round of each tensor; `part` is empty where this rank has none.
template <class Call>
void in_rounds(const Collectives& ranks, const OpenFile& file, const std::vector<StateTensor>& tensors, const Rounds& rounds,
               const PiecesOf& pieces_of, Call call) {
    FirstFailure failure;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const Pieces pieces = pieces_of(t);
        Dataset dataset(file, tensors[t].stored);
        for (std::int64_t r = 0; r < rounds.of[t]; ++r) {
            const std::int64_t begin = r * rounds.values;
            call(t, dataset, begin, failure.any() ? Pieces() : portion(pieces, begin, rounds.values), failure);
            ranks.beat();
        }
    }
    failure.rethrow();
}

}  // namespace

std::uint64_t fingerprint(std::int64_t first_element, const float* values, std::int64_t count) {
    std::uint64_t sum = 0;
    const auto first = 2 * static_cast<std::uint64_t>(first_element) + 1;
    for (std::int64_t i = 0; i < count; ++i) sum += std::bit_cast<std::uint32_t>(values[i]) * (first + 2 * static_cast<std::uint64_t>(i));
    return sum;
}

Rounds rounds_of(const Collectives& ranks, std::vector<std::int64_t> counts, std::int64_t most) {
    Rounds rounds{ranks.min(most), std::move(counts)};
    for (std::int64_t& n : rounds.of) n = (n + rounds.values - 1) / rounds.values;
    ranks.max(std::span(rounds.of));
    return rounds;
}

std::vector<std::uint64_t> write_tensors(const Collectives& ranks, const std::filesystem::path& file, const Hints& hints,
                                         const std::vector<StateTensor>& tensors, const Rounds& rounds, const PiecesOf& pieces_of,
                                         const ValuesOf& values_of) {
    std::vector<std::uint64_t> sums(tensors.size());
    use_file(ranks, file, Use::write, hints, [&](const OpenFile& open) {
        const auto call = [&](std::size_t t, Dataset& dataset, std::int64_t begin, Pieces part, FirstFailure& failure) {
            const float none = 0;
            const float* values = &none;
            failure.attempt([&] {
                if (!part.empty()) values = values_of(t, begin, part);
            });
            if (failure.any()) part.clear();
            const Extents elements = elements_of(part);
            const float* next = values;
            for (const Extent& e : elements) {
                sums[t] += fingerprint(e.offset, next, e.count);
                next += e.count;
            }
            failure.attempt([&] { dataset.write(elements, values); });
        };
        in_rounds(ranks, open, tensors, rounds, pieces_of, call);
    });
    return sums;
}

void read_tensors(const Collectives& ranks, const std::filesystem::path& file, const Hints& hints, const std::vector<StateTensor>& tensors,
                  const Rounds& rounds, const PiecesOf& pieces_of, const Passage& passage, const Take& take) {
    use_file(ranks, file, Use::read, hints, [&](const OpenFile& open) {
        const auto call = [&](std::size_t, Dataset& dataset, std::int64_t, const Pieces& part, FirstFailure& failure) {
            failure.attempt([&] { dataset.read(elements_of(part), passage.values()); });
            failure.attempt([&] {
                if (!failure.any() && !part.empty()) take(passage.values(), part);
            });
        };
        in_rounds(ranks, open, tensors, rounds, pieces_of, call);
    });
}

}  // namespace quadrille

#include "checkpoint/transfer.hpp"

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "checkpoint/first_failure.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace quadrille {
namespace {

constexpr auto value_bytes = static_cast<std::int64_t>(sizeof(float));

// What a round has of one tensor.
struct TensorPart {
    std::size_t tensor = 0;
    std::int64_t count = 0;  // of this rank's values of it
    Pieces pieces;
};

// By pass, the tensors as they lie in the file.
std::vector<std::vector<std::size_t>> passes_of(const std::vector<StateTensor>& tensors) {
    std::vector<std::vector<std::size_t>> passes;
    std::unordered_map<std::int64_t, std::size_t> times;  // that a dataset, by its first byte, has stood so far
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const std::size_t pass = times[tensors[t].stored.offset]++;
        if (pass == passes.size()) passes.emplace_back();
        passes[pass].push_back(t);
    }
    for (std::vector<std::size_t>& pass : passes)
        std::stable_sort(pass.begin(), pass.end(),
                         [&](std::size_t a, std::size_t b) { return tensors[a].stored.offset < tensors[b].stored.offset; });
    return passes;
}

// This rank's values in a pass, one after the other.
class Walk {
  public:
    Walk(const std::vector<std::size_t>& pass, const PiecesOf& pieces_of) : pass_(pass), pieces_of_(pieces_of) {}

    // The next ones, so many at most.
    std::vector<TensorPart> next(std::int64_t most) {
        std::vector<TensorPart> parts;
        while (most > 0 && (begin_ < total_ || open_next())) {
            const std::int64_t count = std::min(most, total_ - begin_);
            if (count > 0) parts.push_back({pass_[at_ - 1], count, portion(pieces_, begin_, count)});
            begin_ += count;
            most -= count;
        }
        return parts;
    }

  private:
    bool open_next() {
        if (at_ == pass_.size()) return false;
        pieces_ = pieces_of_(pass_[at_++]);
        begin_ = 0;
        total_ = total(pieces_);
        return true;
    }

    const std::vector<std::size_t>& pass_;
    const PiecesOf& pieces_of_;
    std::size_t at_ = 0;                  // of the tensor after the one that is open
    Pieces pieces_;
    std::int64_t begin_ = 0, total_ = 0;  // of its values
};

// What a rank moves in a round.
struct Round {
    std::vector<TensorPart> parts;
    std::vector<FileRun> file;
    std::vector<MemoryRun> memory;

    // So many elements of a tensor, whose values lie there.
    void add(const StoredTensor& tensor, std::int64_t element, std::int64_t count, const float* values) {
        const FileRun run{tensor.offset + element * value_bytes, count * value_bytes};
        if (!file.empty() && file.back().offset + file.back().bytes == run.offset) file.back().bytes += run.bytes;
        else file.push_back(run);
        if (!memory.empty() && static_cast<const std::byte*>(memory.back().at) + memory.back().bytes == reinterpret_cast<const std::byte*>(values))
            memory.back().bytes += run.bytes;
        else memory.push_back({values, run.bytes});
    }
};

// Calls fill(round), which this rank may fail in, and then move(round, failure), for each round; a rank that has failed moves nothing.
template <class Fill, class Move>
void in_rounds(const Collectives& ranks, const std::vector<StateTensor>& tensors, const Rounds& rounds, const PiecesOf& pieces_of, Fill fill,
               Move move) {
    FirstFailure failure;
    const auto passes = passes_of(tensors);
    for (std::size_t p = 0; p < passes.size(); ++p) {
        Walk walk(passes[p], pieces_of);
        for (std::int64_t r = 0; r < rounds.of[p]; ++r) {
            Round round;
            if (!failure.any())
                failure.attempt([&] {
                    round.parts = walk.next(rounds.values);
                    fill(round);
                });
            if (failure.any()) round = {};
            move(round, failure);
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

std::uint64_t fingerprint_in(const PlainFile& file, const StoredTensor& tensor, const Extents& elements) {
    std::uint64_t sum = 0;
    std::vector<float> values;
    for (const Extent& e : elements) {
        values.resize(static_cast<std::size_t>(e.count));
        file.read(tensor.offset + e.offset * value_bytes, std::as_writable_bytes(std::span(values)));
        sum += fingerprint(e.offset, values.data(), e.count);
    }
    return sum;
}

Rounds rounds_of(const Collectives& ranks, const std::vector<StateTensor>& tensors, const std::vector<std::int64_t>& counts, std::int64_t most) {
    constexpr std::int64_t most_of_a_call = (std::int64_t{1} << 30) / value_bytes;
    Rounds rounds;
    rounds.values = std::clamp<std::int64_t>(most, 1, most_of_a_call);
    for (const std::vector<std::size_t>& pass : passes_of(tensors)) {
        std::int64_t values = 0;
        for (const std::size_t t : pass) values += counts[t];
        rounds.of.push_back(ceil_div(values, rounds.values));
    }
    ranks.max(std::span(rounds.of));
    return rounds;
}

std::vector<std::uint64_t> write_tensors(const Collectives& ranks, CollectiveFile& file, const std::vector<StateTensor>& tensors,
                                         const Rounds& rounds, const PiecesOf& pieces_of, const ValuesOf& values_of) {
    std::vector<std::uint64_t> sums(tensors.size());
    const auto fill = [&](Round& round) {
        std::int64_t before = 0;
        for (const TensorPart& part : round.parts) {
            const std::vector<const float*> values = values_of(part.pieces, before);
            for (std::size_t i = 0; i < part.pieces.size(); ++i) {
                const Piece& p = part.pieces[i];
                sums[part.tensor] += fingerprint(p.element, values[i], p.count);
                round.add(tensors[part.tensor].stored, p.element, p.count, values[i]);
            }
            before += part.count;
        }
    };
    in_rounds(ranks, tensors, rounds, pieces_of, fill, [&](const Round& round, FirstFailure& failure) {
        failure.attempt([&] { file.write(round.file, round.memory); });
        failure.attempt([&] { file.begin_sync(); });
    });
    return sums;
}

void read_tensors(const Collectives& ranks, CollectiveFile& file, const std::vector<StateTensor>& tensors, const Rounds& rounds,
                  const PiecesOf& pieces_of, const Passage& passage, const Take& take) {
    const auto fill = [&](Round& round) {
        const float* next = passage.values();
        for (const TensorPart& part : round.parts) {
            for (const Piece& p : part.pieces) {
                round.add(tensors[part.tensor].stored, p.element, p.count, next);
                next += p.count;
            }
        }
    };
    in_rounds(ranks, tensors, rounds, pieces_of, fill, [&](const Round& round, FirstFailure& failure) {
        failure.attempt([&] { file.read(round.file, round.memory); });
        if (failure.any()) return;
        failure.attempt([&] {
            const float* next = passage.values();
            for (const TensorPart& part : round.parts) {
                take(next, part.pieces);
                next += part.count;
            }
        });
    });
}

}  // namespace quadrille

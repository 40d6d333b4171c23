#include "checkpoint/in_order.hpp"

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "checkpoint/first_failure.hpp"
#include "checkpoint/running_hash.hpp"
#include "comm/world.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <unordered_map>

namespace quadrille {
namespace {

constexpr auto value_bytes = static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t values_of_block = file_alignment / value_bytes;
constexpr std::int64_t part_bytes = std::int64_t{1} << 20;  // that is hashed between two looks at the disk
constexpr int tag = 1;  // of handed hashes: between two ranks they come in the order of the tensors

std::int64_t elements_of(const StoredTensor& tensor) { return tensor.bytes / value_bytes; }

// What a rank tells of its run of a tensor that several write.
struct Entry { std::int64_t tensor = 0, first = 0, count = 0, rank = 0; };

// Everybody's, by tensor and element.
std::vector<Entry> exchanged(const Collectives& ranks, const std::vector<Entry>& mine) {
    const std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Entry));
    std::string all;
    for (const std::string& of_rank : ranks.gather(text)) all += of_rank;
    all = ranks.broadcast(all);
    std::vector<Entry> entries(all.size() / sizeof(Entry));
    if (!entries.empty()) std::memcpy(entries.data(), all.data(), all.size());
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.tensor, a.first) < std::pair(b.tensor, b.first); });
    return entries;
}

// Which tensors are written in order: large ones that every writer has one run of, and all of them together each element once. `shared`: whether
// several ranks write any of them.
std::vector<char> in_order_of(const Collectives& ranks, const std::vector<StateTensor>& tensors, const std::vector<Extents>& runs,
                              std::int64_t least_bytes, bool& shared) {
    const std::size_t n = tensors.size();
    std::vector<std::uint64_t> sums(3 * n);  // writers, of them such with several runs, elements
    for (std::size_t t = 0; t < n; ++t) {
        sums[t] = runs[t].empty() ? 0 : 1;
        sums[n + t] = runs[t].size() > 1 ? 1 : 0;
        sums[2 * n + t] = static_cast<std::uint64_t>(total(runs[t]));
    }
    ranks.sum(std::span(sums));
    std::vector<char> in_order(n);
    for (std::size_t t = 0; t < n; ++t) {
        const StoredTensor& stored = tensors[t].stored;
        in_order[t] = stored.bytes >= least_bytes && sums[n + t] == 0 && sums[2 * n + t] == static_cast<std::uint64_t>(elements_of(stored));
        shared = shared || (in_order[t] && sums[t] > 1);
    }
    return in_order;
}

// While it waits, what is under way goes on, and the CPU is others'.
RunningHash received(const Collectives& ranks, int from, DirectFile& file, FirstFailure& failure) {
    const auto told = ranks.waits();
    RunningHash::Handed handed;
    MPI_Request request = MPI_REQUEST_NULL;
    mpi_check(MPI_Irecv(handed.data(), static_cast<int>(handed.size()), MPI_BYTE, from, tag, ranks.comm(), &request));
    for (int there = 0;;) {
        mpi_check(MPI_Test(&request, &there, MPI_STATUS_IGNORE));
        if (there) return RunningHash(handed);
        if (!failure.any()) failure.attempt([&] { file.poll(); });
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void hand_on(const Collectives& ranks, const RunningHash& hash, int to) {
    const auto told = ranks.waits();
    const RunningHash::Handed handed = hash.hand_on();
    mpi_check(MPI_Send(handed.data(), static_cast<int>(handed.size()), MPI_BYTE, to, tag, ranks.comm()));
}

// Gathers this rank's runs, writes and hashes them.
class Writer {
  public:
    Writer(const Collectives& ranks, DirectFile& file, Arena& arena, const Passage& passage, std::int64_t portion)
        : ranks_(ranks), file_(file), arena_(arena), passage_(passage), portion_(std::max(portion, values_of_block)) {}

    void run(const StoredTensor& tensor, const Turn& turn, const Pieces& pieces, RunningHash& hash) {
        const Extent whole = whole_blocks(tensor, turn.run);
        const std::int64_t first_place = tensor.offset / value_bytes + turn.run.offset;  // in the file, in values
        for (std::int64_t begin = 0, end = 0; begin < turn.run.count; begin = end) {
            // A portion ends where a block does.
            end = std::min(turn.run.count, (first_place + begin + portion_) / values_of_block * values_of_block - first_place);
            const float* const values = gather(portion(pieces, begin, end - begin), end - begin);
            const std::int64_t from = std::max(begin, whole.offset - turn.run.offset);
            const std::int64_t to = std::min(end, whole.offset - turn.run.offset + whole.count);
            if (from < to) file_.write((first_place + from) * value_bytes, bytes_of(values + (from - begin), to - from));
            add(hash, bytes_of(values, end - begin));
        }
    }
    void finish() {
        file_.wait(0, [&] { ranks_.beat(); });
    }

  private:
    static std::span<const std::byte> bytes_of(const float* values, std::int64_t count) {
        return std::as_bytes(std::span(values, static_cast<std::size_t>(count)));
    }

    // The values one after the other, where they lie or in memory that nothing under way is written from. No more than a portion stays under way.
    const float* gather(const Pieces& pieces, std::int64_t count) {
        file_.wait(portion_ * value_bytes, [&] { ranks_.beat(); });
        if (const float* there = values_in_place(pieces)) return there;
        if (used_ + count > passage_.capacity()) {
            finish();
            used_ = 0;
        }
        used_ += count;
        return gathered(pieces, arena_, passage_, used_ - count);
    }

    void add(RunningHash& hash, std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const auto part = bytes.first(std::min(bytes.size(), static_cast<std::size_t>(part_bytes)));
            hash.add(part);
            file_.poll();
            bytes = bytes.subspan(part.size());
        }
        ranks_.beat();
    }

    const Collectives& ranks_;
    DirectFile& file_;
    Arena& arena_;
    const Passage& passage_;
    const std::int64_t portion_;  // values
    std::int64_t used_ = 0;       // of the passage, values
};

}  // namespace

Turns turns_of(const Collectives& ranks, const std::vector<StateTensor>& tensors, const std::vector<Extents>& runs, std::int64_t least_bytes) {
    bool shared = false;
    Turns turns{in_order_of(ranks, tensors, runs, least_bytes, shared), {}};
    std::vector<Entry> mine;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (!turns.in_order[t] || runs[t].empty()) continue;
        const Extent run = runs[t].front();
        turns.mine.push_back({t, run, -1, -1});
        if (run.count < elements_of(tensors[t].stored)) mine.push_back({static_cast<std::int64_t>(t), run.offset, run.count, ranks.rank()});
    }
    std::sort(turns.mine.begin(), turns.mine.end(),
              [&](const Turn& a, const Turn& b) { return tensors[a.tensor].stored.offset < tensors[b.tensor].stored.offset; });
    if (!shared) return turns;
    const std::vector<Entry> all = exchanged(ranks, mine);
    std::unordered_map<std::size_t, Turn*> of;
    for (Turn& turn : turns.mine) of[turn.tensor] = &turn;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].rank != ranks.rank()) continue;
        Turn& turn = *of.at(static_cast<std::size_t>(all[i].tensor));
        if (i > 0 && all[i - 1].tensor == all[i].tensor) turn.before = static_cast<int>(all[i - 1].rank);
        if (i + 1 < all.size() && all[i + 1].tensor == all[i].tensor) turn.after = static_cast<int>(all[i + 1].rank);
    }
    return turns;
}

Extent whole_blocks(const StoredTensor& tensor, Extent run) {
    if (tensor.offset % value_bytes != 0) return {run.offset, 0};
    const std::int64_t first = tensor.offset / value_bytes;
    const std::int64_t begin = aligned_up(first + run.offset, values_of_block);
    const std::int64_t end = (first + run.offset + run.count) / values_of_block * values_of_block;
    return begin < end ? Extent{begin - first, end - begin} : Extent{run.offset, 0};
}

void write_in_order(const Collectives& ranks, DirectFile& file, const std::vector<StateTensor>& tensors, const std::vector<Turn>& turns,
                    const PiecesOf& pieces_of, Arena& arena, const Passage& passage, std::int64_t portion, std::span<std::int64_t> checksums) {
    FirstFailure failure;
    Writer writer(ranks, file, arena, passage, portion);
    for (const Turn& turn : turns) {
        RunningHash hash = turn.before < 0 ? RunningHash() : received(ranks, turn.before, file, failure);
        if (!failure.any()) failure.attempt([&] { writer.run(tensors[turn.tensor].stored, turn, pieces_of(turn.tensor), hash); });
        if (turn.after >= 0) hand_on(ranks, hash, turn.after);
        else checksums[turn.tensor] = static_cast<std::int64_t>(hash.value());
    }
    failure.attempt([&] { writer.finish(); });
    failure.rethrow();
}

}  // namespace quadrille

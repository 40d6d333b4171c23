#include "checkpoint/checksums.hpp"

#include "checkpoint/first_failure.hpp"
#include "checkpoint/running_hash.hpp"
#include "checkpoint/transfer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <queue>

namespace quadrille {
namespace {

constexpr std::int64_t part_bytes = std::int64_t{1} << 20;  // that a rank reads at once, whole values: stays in its cache for both sums
constexpr std::int64_t part_values = part_bytes / static_cast<std::int64_t>(sizeof(float));

// Which rank reads which tensor: the largest first, each to the rank that has least so far.
std::vector<int> readers_of(const std::vector<StoredTensor>& tensors, int ranks) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return tensors[a].bytes > tensors[b].bytes; });
    using Load = std::pair<std::int64_t, int>;  // bytes, rank
    std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
    for (int r = 0; r < ranks; ++r) least.push({0, r});
    std::vector<int> readers(tensors.size());
    for (const std::size_t t : order) {
        const auto [bytes, rank] = least.top();
        least.pop();
        readers[t] = rank;
        least.push({bytes + tensors[t].bytes, rank});
    }
    return readers;
}

}  // namespace

Sums sums_of(const PlainFile& file, const StoredTensor& tensor, const std::function<void()>& beat) {
    RunningHash hash;
    std::vector<float> part(static_cast<std::size_t>(std::min(part_bytes, tensor.bytes)) / sizeof(float));
    Sums sums;
    const std::int64_t values = tensor.bytes / static_cast<std::int64_t>(sizeof(float));
    for (std::int64_t at = 0; at < values; at += part_values) {
        const std::span<float> now = std::span(part).first(static_cast<std::size_t>(std::min(part_values, values - at)));
        file.read(tensor.offset + at * static_cast<std::int64_t>(sizeof(float)), std::as_writable_bytes(now));
        hash.add(std::as_bytes(now));
        sums.fingerprint += fingerprint(at, now.data(), std::ssize(now));
        beat();
    }
    sums.checksum = hash.value();
    return sums;
}

std::vector<Sums> sums_of(const Collectives& ranks, const std::filesystem::path& file, const std::vector<StoredTensor>& tensors, int threads) {
    constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::min();
    const std::vector<int> readers = readers_of(tensors, ranks.size());
    std::vector<std::int64_t> all(2 * tensors.size(), unknown);
    together(ranks, [&] {
        const PlainFile plain(file, PlainFile::Open::read);
        std::vector<std::size_t> mine;  // the largest first, so that the threads end together
        for (std::size_t t = 0; t < tensors.size(); ++t)
            if (readers[t] == ranks.rank()) mine.push_back(t);
        std::stable_sort(mine.begin(), mine.end(), [&](std::size_t a, std::size_t b) { return tensors[a].bytes > tensors[b].bytes; });
        std::vector<FirstFailure> failures(mine.size());
#pragma omp parallel for schedule(dynamic) num_threads(threads)
        for (std::size_t i = 0; i < mine.size(); ++i)
            failures[i].attempt([&] {
                const Sums sums = sums_of(plain, tensors[mine[i]], [&] { ranks.beat(); });
                all[2 * mine[i]] = static_cast<std::int64_t>(sums.checksum);
                all[2 * mine[i] + 1] = static_cast<std::int64_t>(sums.fingerprint);
            });
        for (const FirstFailure& f : failures) f.rethrow();
    });
    ranks.max(std::span(all));
    std::vector<Sums> sums;
    for (std::size_t t = 0; t < tensors.size(); ++t)
        sums.push_back({static_cast<std::uint64_t>(all[2 * t]), static_cast<std::uint64_t>(all[2 * t + 1])});
    return sums;
}

std::string damage(const Checkpoint& checkpoint, const std::vector<Sums>& found) {
    std::string text;
    for (std::size_t t = 0; t < found.size(); ++t) {
        const StoredTensor& tensor = checkpoint.tensors[t];
        if (found[t].checksum == tensor.checksum) continue;
        text += fmt::format("{}{}: {} is damaged: its checksum is {:016x}, and that of its {} bytes {:016x}", text.empty() ? "" : "\n",
                            checkpoint.file().string(), tensor.path, tensor.checksum, tensor.bytes, found[t].checksum);
    }
    return text;
}

}  // namespace quadrille

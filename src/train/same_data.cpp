#include "train/same_data.hpp"

#include "base/random.hpp"
#include "comm/agree.hpp"

#include <utility>

namespace quadrille {
namespace {

// Sizes and ends, file by file.
std::vector<std::int64_t> figures(const std::vector<FileMark>& files) {
    std::vector<std::int64_t> all;
    for (const FileMark& f : files) all.insert(all.end(), {f.size, static_cast<std::int64_t>(f.ends)});
    return all;
}

std::string as_text(const std::vector<std::int64_t>& numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t)};
}

// Size and ends of file i.
std::pair<std::int64_t, std::uint64_t> figures_at(const std::string& text, std::size_t i) {
    const auto* at = reinterpret_cast<const std::byte*>(text.data()) + 2 * i * sizeof(std::int64_t);
    return {load<std::int64_t>(at), load<std::uint64_t>(at + sizeof(std::int64_t))};
}

// The first rank of the replica: it reads the same sequences.
std::int64_t reader(const Grid& grid, std::int64_t rank) {
    Coordinate c = grid.coordinate(rank);
    c[Axis::pp] = c[Axis::sp] = c[Axis::tp] = c[Axis::tq] = 0;
    return grid.rank(c);
}

}  // namespace

void require_same_files(const World& world, const std::vector<FileMark>& files) {
    const std::string mine = as_text(figures(files));
    const auto hash = static_cast<std::int64_t>(hash_text(mine));
    if (world.min(hash) == world.max(hash)) return;
    const std::string first = world.broadcast(mine), host = world.broadcast(world.host());
    together(world, [&] {
        if (first.size() != mine.size())
            throw Error(Exit::refused, fmt::format("data: rank {} ({}) has {} files, but rank 0 ({}) has {}", world.rank(), world.host(),
                                                   files.size(), host, first.size() / (2 * sizeof(std::int64_t))));
        for (std::size_t i = 0; i < files.size(); ++i) {
            const auto [size, ends] = figures_at(first, i);
            if (size == files[i].size && ends == files[i].ends) continue;
            throw Error(Exit::refused, fmt::format("data: {} has {} bytes on rank {} ({}) and {} on rank 0 ({}){}: all ranks must read the same",
                                                   files[i].path, files[i].size, world.rank(), world.host(), size, host,
                                                   size == files[i].size ? ", but not the same ones" : ""));
        }
    });
}

std::uint64_t hash_of_batch(const Grid& grid, std::span<const std::int64_t> hashes) {
    std::uint64_t sum = 0;
    for (std::size_t r = 0; r < hashes.size(); ++r)
        if (const auto rank = static_cast<std::int64_t>(r); reader(grid, rank) == rank) sum += static_cast<std::uint64_t>(hashes[r]);
    return sum;
}

std::string different_sequences(const Grid& grid, std::int64_t step, std::span<const std::int64_t> hashes) {
    for (std::size_t r = 0; r < hashes.size(); ++r) {
        const std::int64_t first = reader(grid, static_cast<std::int64_t>(r));
        if (hashes[r] != hashes[static_cast<std::size_t>(first)])
            return fmt::format("step {}: ranks {} and {} train on the same sequences, but have read different tokens: the files of data.train are "
                               "not the same on both, or have changed since they were opened", step, first, r);
    }
    return "";
}

}  // namespace quadrille

#include "runtime/arena.hpp"

#include "base/error.hpp"
#include "base/proc.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace quadrille {
namespace {

constexpr std::int64_t huge_page = std::int64_t{2} << 20;

// Writes one byte of every page of an equal part of the memory on each thread.
void touch(std::byte* data, std::int64_t size, int threads) {
    const std::int64_t page = sysconf(_SC_PAGESIZE), pages = (size + huge_page - 1) / huge_page;
    const auto work = [=](std::int64_t first, std::int64_t last) {
        for (std::int64_t at = first * huge_page; at < std::min(size, last * huge_page); at += page)
            *static_cast<volatile std::byte*>(data + at) = std::byte{0};
    };
    std::vector<std::jthread> team;  // one that cannot be started throws, and the others are waited for
    const std::int64_t n = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(pages, 1));
    for (std::int64_t i = 1; i < n; ++i) team.emplace_back(work, pages * i / n, pages * (i + 1) / n);
    work(0, pages / n);
}

// Bytes of the process's memory that are in huge pages; none where the system does not tell.
std::optional<std::int64_t> in_huge_pages() {
    const auto kib = number_after("/proc/self/smaps_rollup", "AnonHugePages:");
    return kib ? std::optional(*kib * 1024) : std::nullopt;
}

}  // namespace

Arena::Arena(const std::array<std::int64_t, tier_count>& bytes, std::string_view purpose, std::int64_t rank, int threads) {
    auto before = in_huge_pages();
    for (std::size_t t = 0; t < tier_count; ++t) {
        if (bytes[t] == 0) continue;
        const auto tier = static_cast<Tier>(t);
        require(tier != Tier::nvme, "runtime: the nvme tier is no memory");
        Reservation& r = reservations_[t];
        const std::int64_t mapped = bytes[t] + huge_page;
        void* const at = mmap(nullptr, static_cast<std::size_t>(mapped), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) {
            const char* const why = std::strerror(errno);
            release();
            throw Error(Exit::no_memory,
                        fmt::format("rank {}: {} bytes of {} memory for {} cannot be had: {}", rank, bytes[t], name_of(tier), purpose, why));
        }
        const auto address = reinterpret_cast<std::uintptr_t>(at);
        const std::uintptr_t aligned = (address + huge_page - 1) / huge_page * huge_page;
        r = {at, mapped, reinterpret_cast<std::byte*>(aligned), bytes[t], std::nullopt};
        madvise(r.data, static_cast<std::size_t>(r.size), MADV_HUGEPAGE);  // advice: no failure matters
        try {
            touch(r.data, r.size, threads);
        } catch (...) {
            release();
            throw;
        }
        const auto after = in_huge_pages();
        if (before && after) r.huge_pages = std::clamp<std::int64_t>(*after - *before, 0, r.size);
        before = after;
    }
}

void Arena::open_file(NvmeOptions options) {
    require(!file_, "runtime: the nvme tier is there already");
    for (const Reservation& r : reservations_)
        if (r.size > 0) options.memory.emplace_back(r.data, static_cast<std::size_t>(r.size));
    const std::int64_t staging = NvmeFile::staging_bytes(options);
    require(size(Tier::host) >= staging, "runtime: host memory has no room for the nvme tier's staging");
    options.staging = {data(Tier::host) + size(Tier::host) - staging, static_cast<std::size_t>(staging)};
    file_.emplace(options);
}

Arena::~Arena() { release(); }

void Arena::release() {
    file_.reset();  // its transfers use the memory
    for (Reservation& r : reservations_)
        if (r.mapping) munmap(r.mapping, static_cast<std::size_t>(r.mapped));
    reservations_ = {};
}

}  // namespace quadrille

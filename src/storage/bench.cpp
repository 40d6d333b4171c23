#include "storage/bench.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.hpp"
#include "storage/nvme_file.hpp"

namespace quadrille {
namespace {

struct Variant {
    const char* algorithm;
    Carrier carrier;
    Access access;
    std::unique_ptr<NvmeFile> file = {};
    std::vector<double> writes = {}, reads = {};  // seconds
};

template <class F>
double seconds_of(F f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void sync(const NvmeFile& file) {
    if (fdatasync(file.descriptor()) != 0)
        throw Error(Exit::io_failed, fmt::format("offload.nvme_path: {}: cannot sync {} bytes: {}", file.name(), file.bytes(), std::strerror(errno)));
}

double write_all(Variant& v, std::span<const std::byte> memory) {
    return seconds_of([&] {
        v.file->wait(v.file->write(0, memory.data(), static_cast<std::int64_t>(memory.size())));
        if (v.access == Access::buffered) sync(*v.file);
    });
}

double read_all(Variant& v, std::span<std::byte> memory) {
    if (v.access == Access::buffered) posix_fadvise(v.file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
    return seconds_of([&] { v.file->wait(v.file->read(0, memory.data(), static_cast<std::int64_t>(memory.size()))); });
}

// A number a page, another each time.
void mark(std::span<std::byte> memory, std::int64_t key) {
    for (std::size_t at = 0; at < memory.size(); at += 4096) {
        const std::int64_t value = key + static_cast<std::int64_t>(at);
        std::memcpy(memory.data() + at, &value, sizeof value);
    }
}

void check_mark(std::span<const std::byte> memory, std::int64_t key, const NvmeFile& file) {
    for (std::size_t at = 0; at < memory.size(); at += 4096) {
        std::int64_t value = 0;
        std::memcpy(&value, memory.data() + at, sizeof value);
        if (value != key + static_cast<std::int64_t>(at))
            throw Error(Exit::io_failed, fmt::format("offload.nvme_path: {}: what was read at byte {} of {} is not what was written", file.name(), at,
                                                     file.bytes()));
    }
}

// Whether the file is what the variant is meant to be; keeps the notes that are not there yet.
bool open_file(const StorageBench& bench, Variant& v, std::span<std::byte> memory, std::vector<std::string>& notes) {
    v.file = std::make_unique<NvmeFile>(
        NvmeOptions{bench.directory, bench.bytes, bench.block_size, bench.queue_depth, v.access, v.carrier, {memory}});
    for (const std::string& note : v.file->notes())
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
    return v.file->carrier() == v.carrier && v.file->access() == v.access;
}

}  // namespace

std::vector<StorageRow> bench_storage(const StorageBench& bench, std::vector<std::string>& notes) {
    require(bench.repetitions > 0 && bench.bytes >= 4096 && bench.bytes % 4096 == 0, "storage: a median needs a measurement, of whole pages");
    std::vector<Variant> variants;
    variants.push_back({"uring-direct", Carrier::io_uring, Access::direct});
    variants.push_back({"uring-buffered", Carrier::io_uring, Access::buffered});
    variants.push_back({"threads-direct", Carrier::threads, Access::direct});
    variants.push_back({"threads-buffered", Carrier::threads, Access::buffered});
    const AlignedMemory owned = aligned_memory(bench.bytes, "to measure a disk with");
    const std::span<std::byte> memory(owned.get(), static_cast<std::size_t>(bench.bytes));
    std::erase_if(variants, [&](Variant& v) { return !open_file(bench, v, memory, notes); });
    for (int k = -1; k < bench.repetitions; ++k)
        for (Variant& v : variants) {
            mark(memory, k);
            const double written = write_all(v, memory);
            mark(memory, bench.bytes);
            const double read = read_all(v, memory);
            check_mark(memory, k, *v.file);
            if (k < 0) continue;
            v.writes.push_back(written);
            v.reads.push_back(read);
        }
    std::vector<StorageRow> rows;
    for (const Variant& v : variants)
        for (const auto& [name, times] : {std::pair{"nvme_write", v.writes}, {"nvme_read", v.reads}}) {
            const double seconds = median(times);
            rows.push_back({name, v.algorithm, bench.bytes, seconds, static_cast<double>(bench.bytes) / seconds * 1e-9, "GB/s"});
        }
    return rows;
}

}  // namespace quadrille

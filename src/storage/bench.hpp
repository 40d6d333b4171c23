// How fast this machine's disk is through the nvme tier: with io_uring and with threads, directly and through the page cache. Returns rows
// and prints nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace quadrille {

struct StorageBench {
    std::string directory = ".";
    std::int64_t block_size = std::int64_t{1} << 20;  // bytes
    int queue_depth = 32;
    std::int64_t bytes = std::int64_t{256} << 20;  // of each file; four exist at once
    int repetitions = 5;
};

struct StorageRow {
    std::string name;       // nvme_write, nvme_read
    std::string algorithm;  // uring-direct, uring-buffered, threads-direct, threads-buffered
    std::int64_t bytes = 0;
    double seconds = 0;  // median
    double rate = 0;     // bytes / seconds
    std::string unit;    // GB/s
};

// A file is written from its first byte to its last and read back, by each variant in turn so that a disturbance meets all. The first pass,
// which gives the disk its blocks, is not counted. A buffered write lasts until the disk has the data, a buffered read finds nothing in the
// page cache: both are rates of the disk. A variant that this machine refuses has no rows; `notes` gets the reason, once. Throws what NvmeFile
// does, and Error{io_failed} if the data read is not the data written.
std::vector<StorageRow> bench_storage(const StorageBench& bench, std::vector<std::string>& notes);

}  // namespace quadrille

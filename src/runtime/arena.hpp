// The memory of a run: one reservation per tier, made once and kept: memory for device and host, a file for nvme. Owns them; knows nothing of
// tensors.
//
// Huge pages are asked for and every page is touched at once by several threads, so that no step pays for a page fault.
#pragma once
#include "ir/type.hpp"
#include "storage/nvme_file.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quadrille {

class Arena {
  public:
    // Bytes per tier; those of the nvme tier are no memory and must be 0: open_file has them. `purpose` and `rank` are for the message only.
    // The memory is zero. Throws Error{no_memory} with rank, bytes and purpose if it cannot be had, and
    // std::system_error where a thread cannot be started.
    Arena(const std::array<std::int64_t, tier_count>& bytes, std::string_view purpose, std::int64_t rank, int threads);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Makes the nvme tier, whose transfers may use the memory above. They pass through the end of host memory. Once. Throws Error{io_failed}.
    void open_file(NvmeOptions options);
    NvmeFile& file() { return *file_; }

    // Of device or host.
    std::byte* data(Tier t) const { return reservations_[static_cast<std::size_t>(t)].data; }
    // Bytes of device or host memory that the system gave in huge pages when they were touched; none where it does not tell.
    std::optional<std::int64_t> huge_pages(Tier t) const { return reservations_[static_cast<std::size_t>(t)].huge_pages; }
    std::int64_t size(Tier t) const { return t != Tier::nvme ? reservations_[static_cast<std::size_t>(t)].size : file_ ? file_->bytes() : 0; }

  private:
    struct Reservation {
        void* mapping = nullptr;
        std::int64_t mapped = 0;
        std::byte* data = nullptr;  // aligned to a huge page
        std::int64_t size = 0;
        std::optional<std::int64_t> huge_pages = 0;  // bytes
    };
    void release();
    std::array<Reservation, tier_count> reservations_;
    std::optional<NvmeFile> file_;
};

}  // namespace quadrille

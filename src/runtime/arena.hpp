// The memory of a run: one reservation per tier, made once and kept: the device's memory, memory of the host, a file for nvme. Owns the last two and
// borrows the device; knows nothing of tensors.
#pragma once
#include "base/reservation.hpp"
#include "ir/type.hpp"
#include "device/device.hpp"
#include "storage/nvme_file.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quadrille {

class Arena {
  public:
    // Bytes per tier; those of the nvme tier are no memory and must be 0: open_file has them. `purpose` and `rank` are for the message only,
    // `threads` touch the host's pages. The memory is zero; the host's becomes the device's partner in copies. Throws Error{no_memory} with rank,
    // bytes and purpose if it cannot be had, and std::system_error where a thread cannot be started.
    Arena(Device& device, const std::array<std::int64_t, tier_count>& bytes, std::string_view purpose, std::int64_t rank, int threads);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Makes the nvme tier, whose transfers may use the host's memory, and the device's where the host reaches it. They pass through the end of host
    // memory. Once. Throws Error{io_failed}.
    void open_file(NvmeOptions options);
    NvmeFile& file() { return *file_; }
    Device& device() const { return device_; }

    // Of device or host.
    std::byte* data(Tier t) const { return t == Tier::device ? device_memory_.data() : host_.data(); }
    // Bytes of device or host memory that the system gave in huge pages when they were touched; none where it does not tell.
    std::optional<std::int64_t> huge_pages(Tier t) const;
    std::int64_t size(Tier t) const;

  private:
    Device& device_;
    std::span<std::byte> device_memory_;
    Reservation host_;
    std::optional<NvmeFile> file_;
};

}  // namespace quadrille

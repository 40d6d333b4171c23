#include "cpu/device.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cstring>

namespace quadrille {
namespace {

// A piece at each look, so that whoever advances several copies takes turns.
class PieceByPiece final : public DeviceCopy {
  public:
    PieceByPiece(std::byte* to, const std::byte* from, std::int64_t bytes) : to_(to), from_(from), bytes_(bytes) {}
    std::int64_t advance() override {
        constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
        const std::int64_t piece = std::min(piece_bytes, bytes_ - copied_);
        std::memcpy(to_ + copied_, from_ + copied_, static_cast<std::size_t>(piece));
        return copied_ += piece;
    }
    Mark begin() const override { return nullptr; }
    Mark end() const override { return nullptr; }

  private:
    std::byte* to_;
    const std::byte* from_;
    std::int64_t bytes_, copied_ = 0;
};

}  // namespace

std::byte* CpuDevice::reserve(std::int64_t bytes, const std::string& what) {
    require(memory_.size() == 0, "cpu: the device's memory is there already");
    memory_ = Reservation(bytes, what, threads_);
    return memory_.data();
}

void CpuDevice::read(void* host, const std::byte* device, std::int64_t bytes) { std::memcpy(host, device, static_cast<std::size_t>(bytes)); }
void CpuDevice::write(std::byte* device, const void* host, std::int64_t bytes) { std::memcpy(device, host, static_cast<std::size_t>(bytes)); }
void CpuDevice::poison(std::byte* device, std::int64_t bytes) { std::memset(device, 0xFF, static_cast<std::size_t>(bytes)); }

std::unique_ptr<DeviceCopy> CpuDevice::copy(CopyQueue, std::byte* to, const std::byte* from, std::int64_t bytes, const Mark&) {
    return std::make_unique<PieceByPiece>(to, from, bytes);
}

}  // namespace quadrille

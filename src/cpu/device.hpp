// The CPU as a device: its memory is the host's, and everything is done at once by who asks for it, on its OpenMP team.
#pragma once
#include "base/reservation.hpp"
#include "cpu/kernels.hpp"
#include "device/device.hpp"

namespace quadrille {

class CpuDevice : public Device {
  public:
    // `threads`: of the OpenMP teams that will call its kernels, and that touch its memory.
    explicit CpuDevice(int threads) : threads_(threads), kernels_(threads) {}

    std::string name() const override { return "cpu"; }
    Kernels& kernels() override { return kernels_; }

    std::byte* reserve(std::int64_t bytes, const std::string& what) override;
    std::optional<std::int64_t> huge_pages() const override { return memory_.huge_pages(); }
    void attach(std::span<std::byte>) override {}
    void detach() noexcept override {}
    bool shares_memory() const override { return true; }
    void read(void* host, const std::byte* device, std::int64_t bytes) override;
    void write(std::byte* device, const void* host, std::int64_t bytes) override;
    const std::int64_t* list(std::span<const std::int64_t> host) override { return host.data(); }
    void poison(std::byte* device, std::int64_t bytes) override;

    bool queues() const override { return false; }
    void settle() override {}
    Mark mark() override { return nullptr; }
    void compute_after(const Mark&) override {}
    std::unique_ptr<DeviceCopy> copy(CopyQueue, std::byte* to, const std::byte* from, std::int64_t bytes, const Mark& after) override;

  private:
    int threads_;
    CpuKernels kernels_;
    Reservation memory_;
};

}  // namespace quadrille

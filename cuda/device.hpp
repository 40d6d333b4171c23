// An NVIDIA GPU as a device: one allocation, a stream for kernels and one each for copies in and out, events for what waits for what.
//
// Host memory that is attached is page-locked, so that copies run beside all else.
#pragma once
#include "cuda/kernels.hpp"
#include "device/device.hpp"

#include <vector>

namespace quadrille {

class CudaDevice final : public Device {
  public:
    // The GPU that CUDA counts as `number`.
    explicit CudaDevice(int number, const CudaKernelsOptions& options = {});
    ~CudaDevice() override;  // waits for all work
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    std::string name() const override;
    Kernels& kernels() override { return *kernels_; }

    std::byte* reserve(std::int64_t bytes, const std::string& what) override;
    std::optional<std::int64_t> huge_pages() const override { return std::nullopt; }
    void attach(std::span<std::byte> host) override;
    void detach() noexcept override;
    bool shares_memory() const override { return false; }
    void read(void* host, const std::byte* device, std::int64_t bytes) override;
    void write(std::byte* device, const void* host, std::int64_t bytes) override;
    const std::int64_t* list(std::span<const std::int64_t> host) override;
    void poison(std::byte* device, std::int64_t bytes) override;

    bool queues() const override { return true; }
    void settle() override;
    Mark mark() override;
    void compute_after(const Mark&) override;
    std::unique_ptr<DeviceCopy> copy(CopyQueue, std::byte* to, const std::byte* from, std::int64_t bytes, const Mark& after) override;

  private:
    class Events;
    class Event;
    class Copy;
    Mark mark(cudaStream_t);
    static void wait_on(cudaStream_t, const Mark&);

    int number_;
    cudaStream_t compute_ = nullptr, in_ = nullptr, out_ = nullptr;
    std::shared_ptr<Events> events_;
    std::unique_ptr<CudaKernels> kernels_;
    std::byte* memory_ = nullptr;
    std::span<std::byte> host_;
    std::vector<void*> lists_;
};

}  // namespace quadrille

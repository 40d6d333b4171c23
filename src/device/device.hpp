// One rank's device: its memory, its kernels, its queues. CpuDevice (cpu/device.hpp) and CudaDevice (cuda/device.hpp) implement it; what is above
// knows none of them.
//
// A device either does all at once, so that a call is done when it returns, or has a compute queue, on which kernels run in order behind the calling
// thread, and a queue each for copies in and out, which run beside it. A Mark orders work of different queues.
//
// One thread calls; a second one may make and advance copies, and ask and wait for marks. Marks and copies may not outlive the device. No
// collectives. What goes wrong on the device is thrown as Error.
#pragma once
#include "kernels/kernels.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quadrille {

// A moment in the work of a queue: when all that was put there before it is done.
class Moment {
  public:
    virtual ~Moment() = default;
    virtual bool reached() = 0;
    // Returns when it is reached. Throws what has gone wrong on the device.
    virtual void wait() = 0;
    // When that was, in seconds on the steady clock; it must be reached.
    virtual double seconds() = 0;
};
using Mark = std::shared_ptr<Moment>;  // null: reached long ago

// Between host and device memory, under way.
class DeviceCopy {
  public:
    virtual ~DeviceCopy() = default;
    // Does some more of it, or looks how far it is. Bytes copied so far; all of them: it is done.
    virtual std::int64_t advance() = 0;
    // When its turn on the queue came, and when it is done; null: as seen by who advances it.
    virtual Mark begin() const = 0;
    virtual Mark end() const = 0;
};

enum class CopyQueue { in, out };  // to the device and from it

class Device {
  public:
    virtual ~Device() = default;

    // As records and messages call it: "cpu", "NVIDIA H200".
    virtual std::string name() const = 0;
    // Those of the compute queue. They last as long as the device.
    virtual Kernels& kernels() = 0;

    // ---- memory
    // The device tier's bytes, zero, once. Throws Error{no_memory}: "`what` cannot be had: " and why.
    virtual std::byte* reserve(std::int64_t bytes, const std::string& what) = 0;
    // Of these, what the system gave in huge pages; none where it does not tell, or knows none.
    virtual std::optional<std::int64_t> huge_pages() const = 0;
    // Memory of the host that copies will be from and to, one at a time, and its end: no copy is under way then. The end does not throw, for it also
    // comes where a kernel has failed, and that failure is to be told.
    virtual void attach(std::span<std::byte> host) = 0;
    virtual void detach() noexcept = 0;
    // Whether the host reads and writes the device's memory as it does its own.
    virtual bool shares_memory() const = 0;
    // From and to any memory of the host, after all that is on the compute queue; done on return. No copy of that memory may be under way.
    virtual void read(void* host, const std::byte* device, std::int64_t bytes) = 0;
    virtual void write(std::byte* device, const void* host, std::int64_t bytes) = 0;
    // A list as kernels can read it, which must stay as it is for the device's life.
    virtual const std::int64_t* list(std::span<const std::int64_t> host) = 0;
    // Every byte of device memory becomes 0xFF, on the compute queue.
    virtual void poison(std::byte* device, std::int64_t bytes) = 0;

    // ---- queues
    // Whether there are any.
    virtual bool queues() const = 0;
    // Returns when the compute queue is empty. Moments that come soon after are told to some microseconds of the clock.
    virtual void settle() = 0;
    // Of the compute queue, as far as it has been filled.
    virtual Mark mark() = 0;
    // What is put on the compute queue from now on comes after the mark.
    virtual void compute_after(const Mark&) = 0;
    // Begins when `after` is reached. The memory must be attached, and the device's own.
    virtual std::unique_ptr<DeviceCopy> copy(CopyQueue, std::byte* to, const std::byte* from, std::int64_t bytes, const Mark& after) = 0;
};

}  // namespace quadrille

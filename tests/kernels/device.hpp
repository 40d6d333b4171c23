// The kernels that a test calls, of the device that it was linked with: device_DEVICE.cpp beside this. What they are handed is memory from the
// heap, which all these devices can reach.
#pragma once
#include "kernels/kernels.hpp"

#include <exception>
#include <memory>

namespace quadrille::test {

// Of a device's file: its kernels as the calling thread is set up now, and waiting until all that they were asked for is done.
std::shared_ptr<Kernels> kernels_of_device();
void finish_on_device();
// By how much it rounds attention's probabilities, relative, before they weight v: tensor cores take them in the type of v; 0 where they stay fp32.
double probability_rounding(DType type);

// One call, which is done at the end of the statement: kernels()->zero(y.data(), bytes).
class OneCall {
  public:
    OneCall() = default;
    ~OneCall() noexcept(false) {
        if (std::uncaught_exceptions() == before_) finish_on_device();
    }
    OneCall(const OneCall&) = delete;
    OneCall& operator=(const OneCall&) = delete;
    Kernels* operator->() { return kernels_.get(); }

  private:
    std::shared_ptr<Kernels> kernels_ = kernels_of_device();
    int before_ = std::uncaught_exceptions();
};
inline OneCall kernels() { return {}; }

}  // namespace quadrille::test

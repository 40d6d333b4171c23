// The emulated device itself: one, with few processors, so that grids which count on many get loops to run; its memory, full of NaNs when it is
// given, which is the host's; errors; and the limits of a launch.
#include "emulator/streams.hpp"

#include <cstring>
#include <map>
#include <new>
#include <utility>

namespace {

constexpr std::size_t device_bytes = std::size_t{4} << 30, alignment = 256;
constexpr int shared_bytes_optin = 227 * 1024, shared_bytes_unasked = 48 * 1024, processors = 4;

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool has_set_device = false;
cudaError_t failed(cudaError_t status) { return last_error = status; }

// What is allocated, and what kernels may have of dynamic shared memory.
struct Device {
    std::map<void*, std::size_t> device, host, registered;
    std::size_t used = 0;
    std::map<const void*, int> shared_bytes;
};
Device& device() {
    static Device one;
    return one;
}

cudaError_t allocate(std::map<void*, std::size_t>& in, void** p, std::size_t bytes) {
    *p = nullptr;
    if (bytes == 0) return cudaSuccess;
    *p = ::operator new(bytes, std::align_val_t{alignment}, std::nothrow);
    if (!*p) return failed(cudaErrorMemoryAllocation);
    std::memset(*p, 0xFF, bytes);
    in[*p] = bytes;
    return cudaSuccess;
}

// Waits for all work, as a device does.
cudaError_t release(std::map<void*, std::size_t>& from, void* p) {
    if (!p) return cudaSuccess;
    const auto at = from.find(p);
    if (at == from.end()) return failed(cudaErrorInvalidValue);
    quadrille::emulator::streams().run_all();
    if (&from == &device().device) device().used -= at->second;
    from.erase(at);
    ::operator delete(p, std::align_val_t{alignment});
    return cudaSuccess;
}

}  // namespace

using quadrille::emulator::streams;

const char* cudaGetErrorName(cudaError_t status) {
    switch (status) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
        case cudaErrorNoDevice: return "cudaErrorNoDevice";
        case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
        case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
        case cudaErrorNotReady: return "cudaErrorNotReady";
        case cudaErrorHostMemoryAlreadyRegistered: return "cudaErrorHostMemoryAlreadyRegistered";
        case cudaErrorHostMemoryNotRegistered: return "cudaErrorHostMemoryNotRegistered";
        case cudaErrorNotSupported: return "cudaErrorNotSupported";
    }
    return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t status) { return status == cudaSuccess ? "no error" : "as emulated"; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* which) {
    *which = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int which) {
    if (which != 0) return failed(cudaErrorInvalidDevice);
    has_set_device = true;
    return cudaSuccess;
}
bool quadrille::emulator::this_thread_has_set_its_device() { return has_set_device; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int which) {
    if (which != 0) return failed(cudaErrorInvalidDevice);
    *p = {};
    std::strcpy(p->name, "emulated GPU");
    p->totalGlobalMem = device_bytes, p->sharedMemPerBlock = shared_bytes_unasked, p->sharedMemPerBlockOptin = shared_bytes_optin;
    p->major = 9, p->minor = 0, p->multiProcessorCount = processors, p->maxThreadsPerBlock = 1024, p->warpSize = 32, p->asyncEngineCount = 2;
    p->l2CacheSize = 1 << 20;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int which) {
    if (which != 0) return failed(cudaErrorInvalidDevice);
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; return cudaSuccess;
        case cudaDevAttrMultiProcessorCount: *value = processors; return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_bytes_optin; return cudaSuccess;
    }
    return failed(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    const auto held = streams().lock();
    *free = device_bytes - device().used, *total = device_bytes;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
    const auto held = streams().lock();
    if (bytes > device_bytes - device().used) return failed(cudaErrorMemoryAllocation);
    const cudaError_t status = allocate(device().device, p, bytes);
    if (status == cudaSuccess) device().used += bytes;
    return status;
}
cudaError_t cudaMallocManaged(void** p, std::size_t bytes, unsigned) { return cudaMalloc(p, bytes); }
cudaError_t cudaFree(void* p) {
    const auto held = streams().lock();
    return release(device().device, p);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
    const auto held = streams().lock();
    return allocate(device().host, p, bytes);
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return cudaHostAlloc(p, bytes, cudaHostAllocDefault); }
cudaError_t cudaFreeHost(void* p) {
    const auto held = streams().lock();
    return release(device().host, p);
}
cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
    const auto held = streams().lock();
    if (!p || bytes == 0) return failed(cudaErrorInvalidValue);
    return device().registered.emplace(p, bytes).second ? cudaSuccess : failed(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* p) {
    const auto held = streams().lock();
    return device().registered.erase(p) == 1 ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    const auto held = streams().lock();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > shared_bytes_optin) return failed(cudaErrorInvalidValue);
    device().shared_bytes[kernel] = value;
    return cudaSuccess;
}

namespace quadrille::emulator {

cudaError_t put_grid(const cudaLaunchConfig_t& config, std::function<void()> call);

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> call) {
    const auto [gx, gy, gz] = config.gridDim;
    const auto [bx, by, bz] = config.blockDim;
    const std::uint64_t threads = std::uint64_t{bx} * by * bz;
    if (gx == 0 || gy == 0 || gz == 0 || gx > 0x7FFFFFFFu || gy > 65535 || gz > 65535 || threads == 0 || threads > 1024 || bz > 64)
        return failed(cudaErrorInvalidConfiguration);
    {
        const auto held = streams().lock();
        const auto asked = device().shared_bytes.find(kernel);
        const int allowed = asked == device().shared_bytes.end() ? shared_bytes_unasked : std::max(asked->second, shared_bytes_unasked);
        if (config.dynamicSmemBytes > static_cast<std::size_t>(allowed)) return failed(cudaErrorInvalidValue);
    }
    const cudaError_t status = put_grid(config, std::move(call));
    return status == cudaSuccess ? status : failed(status);
}

}  // namespace quadrille::emulator

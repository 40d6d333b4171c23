#include "cuda/device.hpp"

#include "cuda/error.hpp"

#include <chrono>
#include <limits>
#include <mutex>
#include <tuple>
#include <utility>

namespace quadrille {
namespace {

double steady_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

cudaEvent_t new_event(unsigned flags) {
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreateWithFlags(&event, flags), "making an event");
    return event;
}

// An event whose time is known on the host's clock too: others are told from it. Elapsed times are fp32 milliseconds, so it should be of late.
struct Origin {
    cudaEvent_t event = nullptr;
    double seconds = 0;

    // Each try's event happens between two looks at the clock; the middle of the shortest try is wrong by half of it at most.
    explicit Origin(cudaStream_t idle) {
        double least = std::numeric_limits<double>::infinity();
        for (int tries = 0; tries < 4; ++tries) {
            cudaEvent_t tried = new_event(cudaEventDefault);  // a thread that sleeps while it waits would wake late
            const double before = steady_now();
            cuda_check(cudaEventRecord(tried, idle), "recording an event");
            cuda_check(cudaEventSynchronize(tried), "waiting for an event");
            const double took = steady_now() - before;
            if (took < least) std::swap(event, tried), least = took, seconds = before + took / 2;
            if (tried) cudaEventDestroy(tried);
        }
    }
    ~Origin() { cudaEventDestroy(event); }
    Origin(const Origin&) = delete;
    Origin& operator=(const Origin&) = delete;
};

}  // namespace

// Events that are not in use, and the latest origin. Several threads may take and give back.
class CudaDevice::Events {
  public:
    explicit Events(int device) : device_(device) {}
    // For a thread that may be new to CUDA, whose first call would make a context on GPU 0, with half a gigabyte of that one's memory.
    void take_device() const { cuda_check(cudaSetDevice(device_), "taking the GPU"); }
    ~Events() {
        for (cudaEvent_t e : free_) cudaEventDestroy(e);
    }
    std::pair<cudaEvent_t, std::shared_ptr<Origin>> take() {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) return {new_event(cudaEventBlockingSync), origin_};
        const cudaEvent_t event = free_.back();
        free_.pop_back();
        return {event, origin_};
    }
    void give_back(cudaEvent_t event) {
        const std::lock_guard lock(mutex_);
        free_.push_back(event);
    }
    void begin_from(std::shared_ptr<Origin> origin) {
        const std::lock_guard lock(mutex_);
        origin_ = std::move(origin);
    }

  private:
    const int device_;
    std::mutex mutex_;
    std::vector<cudaEvent_t> free_;
    std::shared_ptr<Origin> origin_;
};

class CudaDevice::Event final : public Moment {
  public:
    Event(std::shared_ptr<Events> events, cudaStream_t stream) : events_(std::move(events)) {
        std::tie(event_, origin_) = events_->take();
        cuda_check(cudaEventRecord(event_, stream), "recording an event");
    }
    ~Event() override { events_->give_back(event_); }
    bool reached() override {
        events_->take_device();
        const cudaError_t status = cudaEventQuery(event_);
        if (status == cudaErrorNotReady) return cudaGetLastError(), false;
        cuda_check(status, "asking for an event");
        return true;
    }
    void wait() override {
        events_->take_device();
        cuda_check(cudaEventSynchronize(event_), "waiting for an event");
    }
    double seconds() override {
        events_->take_device();
        float milliseconds = 0;
        cuda_check(cudaEventElapsedTime(&milliseconds, origin_->event, event_), "timing an event");
        return origin_->seconds + static_cast<double>(milliseconds) * 1e-3;
    }
    cudaEvent_t event() const { return event_; }

  private:
    std::shared_ptr<Events> events_;
    cudaEvent_t event_ = nullptr;
    std::shared_ptr<Origin> origin_;
};

class CudaDevice::Copy final : public DeviceCopy {
  public:
    Copy(Mark begin, Mark end, std::int64_t bytes) : begin_(std::move(begin)), end_(std::move(end)), bytes_(bytes) {}
    std::int64_t advance() override { return end_->reached() ? bytes_ : 0; }
    Mark begin() const override { return begin_; }
    Mark end() const override { return end_; }

  private:
    Mark begin_, end_;
    std::int64_t bytes_;
};

CudaDevice::CudaDevice(int number, const CudaKernelsOptions& options) : number_(number) {
    cuda_check(cudaSetDevice(number), fmt::format("taking GPU {}", number));
    cuda_check(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking), "making the stream of kernels");
    cuda_check(cudaStreamCreateWithFlags(&in_, cudaStreamNonBlocking), "making the stream of copies in");
    cuda_check(cudaStreamCreateWithFlags(&out_, cudaStreamNonBlocking), "making the stream of copies out");
    events_ = std::make_shared<Events>(number);
    kernels_ = std::make_unique<CudaKernels>(compute_, options);
    settle();
}

// What fails here was told before, or is of no account any more.
CudaDevice::~CudaDevice() {
    cudaSetDevice(number_);
    cudaDeviceSynchronize();
    kernels_.reset();
    for (void* const list : lists_) cudaFree(list);
    if (!host_.empty()) cudaHostUnregister(host_.data());
    cudaFree(memory_);
    for (const cudaStream_t stream : {compute_, in_, out_}) cudaStreamDestroy(stream);
}

std::string CudaDevice::name() const {
    cudaDeviceProp properties;
    cuda_check(cudaGetDeviceProperties(&properties, number_), "asking for the GPU's name");
    return properties.name;
}

std::byte* CudaDevice::reserve(std::int64_t bytes, const std::string& what) {
    require(!memory_, "cuda: the device's memory is there already");
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (status != cudaSuccess) {
        cudaGetLastError();
        throw Error(Exit::no_memory, fmt::format("{} cannot be had: {}: {}", what, cudaGetErrorName(status), cudaGetErrorString(status)));
    }
    memory_ = static_cast<std::byte*>(memory);
    cuda_check(cudaMemsetAsync(memory_, 0, static_cast<std::size_t>(bytes), compute_), "zeroing the device's memory");
    settle();
    return memory_;
}

void CudaDevice::attach(std::span<std::byte> host) {
    require(host_.empty(), "cuda: memory of the host is attached already");
    cuda_check(cudaHostRegister(host.data(), host.size(), cudaHostRegisterDefault), fmt::format("page-locking {} bytes of host memory", host.size()));
    host_ = host;
}

// After a failed kernel every call here fails: as in the destructor, it was told before.
void CudaDevice::detach() noexcept {
    if (host_.empty()) return;
    cudaStreamSynchronize(compute_);
    cudaHostUnregister(std::exchange(host_, {}).data());
    cudaGetLastError();
}

void CudaDevice::read(void* host, const std::byte* device, std::int64_t bytes) {
    cuda_check(cudaMemcpyAsync(host, device, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, compute_), "reading the device's memory");
    cuda_check(cudaStreamSynchronize(compute_), "reading the device's memory");
}

void CudaDevice::write(std::byte* device, const void* host, std::int64_t bytes) {
    cuda_check(cudaMemcpyAsync(device, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, compute_), "writing the device's memory");
    cuda_check(cudaStreamSynchronize(compute_), "writing the device's memory");
}

const std::int64_t* CudaDevice::list(std::span<const std::int64_t> host) {
    if (host.empty()) return nullptr;
    void* device = nullptr;
    cuda_check(cudaMalloc(&device, host.size_bytes()), fmt::format("{} bytes for a list of indices", host.size_bytes()));
    lists_.push_back(device);
    write(static_cast<std::byte*>(device), host.data(), static_cast<std::int64_t>(host.size_bytes()));
    return static_cast<const std::int64_t*>(device);
}

void CudaDevice::poison(std::byte* device, std::int64_t bytes) {
    cuda_check(cudaMemsetAsync(device, 0xFF, static_cast<std::size_t>(bytes), compute_), "poisoning the device's memory");
}

void CudaDevice::settle() {
    cuda_check(cudaStreamSynchronize(compute_), "waiting for kernels");
    events_->begin_from(std::make_shared<Origin>(compute_));
}

Mark CudaDevice::mark(cudaStream_t stream) { return std::make_shared<Event>(events_, stream); }
Mark CudaDevice::mark() { return mark(compute_); }

void CudaDevice::wait_on(cudaStream_t stream, const Mark& mark) {
    if (mark) cuda_check(cudaStreamWaitEvent(stream, static_cast<const Event&>(*mark).event(), 0), "waiting for an event");
}
void CudaDevice::compute_after(const Mark& mark) { wait_on(compute_, mark); }

std::unique_ptr<DeviceCopy> CudaDevice::copy(CopyQueue queue, std::byte* to, const std::byte* from, std::int64_t bytes, const Mark& after) {
    events_->take_device();
    const bool in = queue == CopyQueue::in;
    const cudaStream_t stream = in ? in_ : out_;
    wait_on(stream, after);
    Mark begin = mark(stream);
    const auto kind = in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    cuda_check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream),
               fmt::format("copying {} bytes {} the device", bytes, in ? "to" : "from"));
    return std::make_unique<Copy>(std::move(begin), mark(stream), bytes);
}

}  // namespace quadrille

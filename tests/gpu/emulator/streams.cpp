// Streams, events and what is put on them; the calls of the API say what NVIDIA's do.
#include "emulator/streams.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace quadrille::emulator {

namespace {

bool may_go_on(const CUstream_st& s) { return !s.queue.empty() && (!s.queue.front().after || s.queue.front().after->reached); }

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Streams& streams() {
    static Streams all;
    return all;
}

CUstream_st* Streams::make() { return streams_.emplace_back(std::make_unique<CUstream_st>()).get(); }

CUstream_st* Streams::find(cudaStream_t stream) {
    if (!stream) return &default_;
    const auto at = std::find_if(streams_.begin(), streams_.end(), [&](const auto& s) { return s.get() == stream && !s->destroyed; });
    return at == streams_.end() ? nullptr : at->get();
}

void Streams::add(CUstream_st& stream, Work work) { stream.queue.push_back(std::move(work)); }

// One piece of work of one stream: half of the time of the first one that can go on in an order that changes seldom, so that some streams fall far
// behind; else of any.
bool Streams::step() {
    std::erase_if(streams_, [](const auto& s) { return s->destroyed && s->queue.empty(); });
    std::vector<CUstream_st*> able;
    if (may_go_on(default_)) able.push_back(&default_);
    for (const auto& s : streams_)
        if (may_go_on(*s)) able.push_back(s.get());
    if (able.empty()) return false;
    if (draw() % 16 == 0 && !streams_.empty())
        std::rotate(streams_.begin(), streams_.begin() + static_cast<std::ptrdiff_t>(draw() % streams_.size()), streams_.end());
    CUstream_st& chosen = *able[draw() % 2 == 0 ? 0 : draw() % able.size()];
    const Work work = std::move(chosen.queue.front());
    chosen.queue.pop_front();
    if (work.run) work.run();
    return true;
}

void Streams::run_until(const std::function<bool()>& done) {
    while (!done())
        if (!step()) throw Fault("the host waits for work that waits for an event which nobody records");
}

void Streams::run_some() {
    for (std::uint64_t n = draw() % 4; n > 0 && step(); --n) {}
}

void Streams::run_all() {
    const auto idle = [](const auto& s) { return s->queue.empty(); };
    run_until([&] { return default_.queue.empty() && std::all_of(streams_.begin(), streams_.end(), idle); });
}

namespace {

// Queues the work, or says that there is no such stream.
cudaError_t put(cudaStream_t stream, std::function<void()> run, std::shared_ptr<Point> after = nullptr) {
    const auto held = streams().lock();
    CUstream_st* const s = streams().find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    streams().add(*s, {std::move(run), std::move(after)});
    return cudaSuccess;
}

}  // namespace

}  // namespace quadrille::emulator

using namespace quadrille::emulator;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    const auto held = streams().lock();
    *stream = streams().make();
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0, *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const auto held = streams().lock();
    CUstream_st* const s = streams().find(stream);
    if (!stream || !s) return cudaErrorInvalidResourceHandle;
    s->destroyed = true;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const auto held = streams().lock();
    CUstream_st* const s = streams().find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    streams().run_until([&] { return s->queue.empty(); });
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const auto held = streams().lock();
    CUstream_st* const s = streams().find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    streams().run_some();
    return s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
    const auto held = streams().lock();
    streams().run_all();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new CUevent_st{nullptr, (flags & cudaEventDisableTiming) == 0};
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (!event) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!event) return cudaErrorInvalidResourceHandle;
    const auto point = std::make_shared<Point>();
    const cudaError_t status = put(stream, [point] { point->reached = true, point->seconds = now(); });
    if (status == cudaSuccess) event->recorded = point;
    return status;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (!event) return cudaErrorInvalidResourceHandle;
    return event->recorded ? put(stream, nullptr, event->recorded) : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!event) return cudaErrorInvalidResourceHandle;
    const auto held = streams().lock();
    streams().run_some();
    return !event->recorded || event->recorded->reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!event) return cudaErrorInvalidResourceHandle;
    const auto held = streams().lock();
    streams().run_until([&] { return !event->recorded || event->recorded->reached; });
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    if (!begin || !end || !begin->timed || !end->timed || !begin->recorded || !end->recorded) return cudaErrorInvalidResourceHandle;
    if (!begin->recorded->reached || !end->recorded->reached) return cudaErrorNotReady;
    *milliseconds = static_cast<float>((end->recorded->seconds - begin->recorded->seconds) * 1e3);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return put(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
    if (to_pitch < width || from_pitch < width) return cudaErrorInvalidValue;
    return put(stream, [=] {
        for (std::size_t row = 0; row < height; ++row)
            std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch, width);
    });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return put(stream, [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    const cudaError_t status = cudaMemsetAsync(to, value, bytes, nullptr);
    return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void* data) {
    return put(stream, [=] { f(data); });
}

namespace quadrille::emulator {

cudaError_t put_grid(const cudaLaunchConfig_t& config, std::function<void()> call) {
    return put(config.stream, [config, call = std::move(call)] { run_grid(config.gridDim, config.blockDim, config.dynamicSmemBytes, call); });
}

}  // namespace quadrille::emulator

// Maps of one element to one: each moves its operands and results once, the least there is (bytes an element, f32 and 16 bits: add, gelu_dx, swiglu
// 12 and 6; scale, gelu 8 and 4; swiglu_dx 20 and 10; cast and accumulate what their types hold). gelu and silu cost some 40 instructions an
// element, about as many as an H100 has time for while 4 bytes an element pass: they are bound by both.
#include "cuda/kernels.hpp"
#include "cuda/map.cuh"
#include "cuda/with_type.hpp"
#include "kernels/arithmetic.hpp"

namespace quadrille {

using namespace cuda;

namespace {

struct Add {
    __device__ void operator()(float (&y)[1], float a, float b) const { y[0] = a + b; }
};
struct Scale {
    float by;
    __device__ void operator()(float (&y)[1], float x) const { y[0] = by * x; }
};
struct Gelu {
    __device__ void operator()(float (&y)[1], float x) const { y[0] = gelu32(x); }
};
struct GeluSlope {
    __device__ void operator()(float (&dx)[1], float x, float dy) const { dx[0] = dy * gelu32_slope(x); }
};
struct Swiglu {
    __device__ void operator()(float (&y)[1], float gate, float up) const { y[0] = silu32(gate) * up; }
};
struct SwigluSlopes {
    __device__ void operator()(float (&d)[2], float gate, float up, float dy) const {
        d[0] = dy * up * silu32_slope(gate);
        d[1] = dy * silu32(gate);
    }
};
struct Same {
    __device__ void operator()(float (&y)[1], float x) const { y[0] = x; }
};

// Numbers of the step, of which there are few.
__global__ void add_numbers(const double* a, const double* b, double* y, std::int64_t count) {
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) y[i] = a[i] + b[i];
}
__global__ void scale_numbers(const double* x, double by, double* y, std::int64_t count) {
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) y[i] = by * x[i];
}

template <class T>
Results<T, 1> to(void* p) { return {{of<T>(p)}}; }

}  // namespace

void CudaKernels::add(const void* a, const void* b, void* y, std::int64_t count, DType t) {
    if (t == DType::f64)
        return launch(add_numbers, Grid{count > 0, map_threads}, stream_, of<double>(a), of<double>(b), of<double>(y), count);
    with_type(t, [&]<class T>(T) { map(stream_, Add{}, count, to<T>(y), of<T>(a), of<T>(b)); });
}

void CudaKernels::scale(const void* x, double factor, void* y, std::int64_t count, DType t) {
    if (t == DType::f64) return launch(scale_numbers, Grid{count > 0, map_threads}, stream_, of<double>(x), factor, of<double>(y), count);
    with_type(t, [&]<class T>(T) { map(stream_, Scale{static_cast<float>(factor)}, count, to<T>(y), of<T>(x)); });
}

void CudaKernels::gelu(const void* x, void* y, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) { map(stream_, Gelu{}, count, to<T>(y), of<T>(x)); });
}

void CudaKernels::gelu_dx(const void* x, const void* dy, void* dx, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) { map(stream_, GeluSlope{}, count, to<T>(dx), of<T>(x), of<T>(dy)); });
}

void CudaKernels::swiglu(const void* gate, const void* up, void* y, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) { map(stream_, Swiglu{}, count, to<T>(y), of<T>(gate), of<T>(up)); });
}

void CudaKernels::swiglu_dx(const void* gate, const void* up, const void* dy, void* dgate, void* dup, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) {
        const Results<T, 2> both{{of<T>(dgate), of<T>(dup)}};
        map(stream_, SwigluSlopes{}, count, both, of<T>(gate), of<T>(up), of<T>(dy));
    });
}

void CudaKernels::cast(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) {
    if (src_type == dst_type) {
        const auto bytes = static_cast<std::size_t>(count * bytes_of(src_type));
        if (dst != src && bytes > 0) cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream_), "copying a buffer");
        return;
    }
    with_type(src_type, [&]<class S>(S) {
        with_type(dst_type, [&]<class D>(D) {
            if constexpr (!std::is_same_v<S, D>) map(stream_, Same{}, count, to<D>(dst), of<S>(src));
        });
    });
}

void CudaKernels::accumulate(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) {
    with_type(src_type, [&]<class S>(S) {
        with_type(dst_type, [&]<class D>(D) { map(stream_, Add{}, count, to<D>(dst), static_cast<const D*>(dst), of<S>(src)); });
    });
}

void CudaKernels::zero(void* dst, std::int64_t bytes) {
    if (bytes > 0) cuda_check(cudaMemsetAsync(dst, 0, static_cast<std::size_t>(bytes), stream_), "zeroing a buffer");
}

}  // namespace quadrille

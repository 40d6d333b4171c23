// Elementwise kernels: each is one expression over each_element, so the number of threads cannot change a bit.
#include "base/random.hpp"
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <omp.h>

namespace quadrille {

void CpuKernels::add(const void* a, const void* b, void* y, std::int64_t count, DType t) {
    if (t == DType::f64) {
        const auto *pa = static_cast<const double*>(a), *pb = static_cast<const double*>(b);
        auto* const py = static_cast<double*>(y);
        return each_element(count, [=](std::int64_t i) { py[i] = pa[i] + pb[i]; });
    }
    with_type(t, [&]<class T>(T) {
        const T* pa = static_cast<const T*>(a);
        const T* pb = static_cast<const T*>(b);
        T* py = static_cast<T*>(y);
        each_element(count, [=](std::int64_t i) { store(py[i], load(pa[i]) + load(pb[i])); });
    });
}

void CpuKernels::scale(const void* x, double factor, void* y, std::int64_t count, DType t) {
    if (t == DType::f64) {
        const auto* const px = static_cast<const double*>(x);
        auto* const py = static_cast<double*>(y);
        return each_element(count, [=](std::int64_t i) { py[i] = factor * px[i]; });
    }
    with_type(t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        T* py = static_cast<T*>(y);
        const auto by = static_cast<float>(factor);
        each_element(count, [=](std::int64_t i) { store(py[i], by * load(px[i])); });
    });
}

void CpuKernels::add_bias(const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t cols, DType t) {
    with_type(t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        const T* pb = static_cast<const T*>(bias);
        T* py = static_cast<T*>(y);
#pragma omp parallel for schedule(static) if (rows * cols >= parallel_grain)
        for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t row = r * cols;
#pragma omp simd
            for (std::int64_t c = 0; c < cols; ++c) store(py[row + c], load(px[row + c]) + load(pb[c]));
        }
    });
}

void CpuKernels::gelu(const void* x, void* y, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        T* py = static_cast<T*>(y);
        each_element(count, [=](std::int64_t i) { store(py[i], gelu32(load(px[i]))); });
    });
}

void CpuKernels::gelu_dx(const void* x, const void* dy, void* dx, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        const T* pdy = static_cast<const T*>(dy);
        T* pdx = static_cast<T*>(dx);
        each_element(count, [=](std::int64_t i) { store(pdx[i], load(pdy[i]) * gelu32_slope(load(px[i]))); });
    });
}

void CpuKernels::swiglu(const void* gate, const void* up, void* y, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) {
        const T* pg = static_cast<const T*>(gate);
        const T* pu = static_cast<const T*>(up);
        T* py = static_cast<T*>(y);
        each_element(count, [=](std::int64_t i) { store(py[i], silu32(load(pg[i])) * load(pu[i])); });
    });
}

void CpuKernels::swiglu_dx(const void* gate, const void* up, const void* dy, void* dgate, void* dup, std::int64_t count, DType t) {
    with_type(t, [&]<class T>(T) {
        const T* pg = static_cast<const T*>(gate);
        const T* pu = static_cast<const T*>(up);
        const T* pdy = static_cast<const T*>(dy);
        T* pdg = static_cast<T*>(dgate);
        T* pdu = static_cast<T*>(dup);
        each_element(count, [=](std::int64_t i) {
            const float g = load(pg[i]), u = load(pu[i]), d = load(pdy[i]);
            store(pdg[i], d * u * silu32_slope(g));
            store(pdu[i], d * silu32(g));
        });
    });
}

namespace {

// One row whose channel 0 is the global element `first`.
template <class T>
void drop_row(const T* x, T* y, const Dropout& d, std::int64_t first, std::uint32_t threshold, float factor) {
    const std::int64_t* const channel = d.channel_index;
    const std::uint64_t key = d.key;
    const std::int64_t h = d.h;
#pragma omp simd
    for (std::int64_t c = 0; c < h; ++c) {
        const float kept = keeps(key, static_cast<std::uint64_t>(first + channel[c]), threshold) ? factor : 0.0f;
        store(y[c], load(x[c]) * kept);
    }
}

}  // namespace

void CpuKernels::dropout(const Dropout& d, const void* x, void* y) {
    const std::uint32_t threshold = keep_threshold(d.rate);
    const float factor = static_cast<float>(1.0 / (1.0 - d.rate));
    const std::int64_t rows = d.b * d.s;
    with_type(d.t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        T* py = static_cast<T*>(y);
#pragma omp parallel for schedule(static) if (rows * d.h >= parallel_grain)
        for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t first = (d.sample_index[r / d.s] * d.global_s + d.position[r % d.s]) * d.global_h;
            drop_row(px + r * d.h, py + r * d.h, d, first, threshold, factor);
        }
    });
}

namespace {

constexpr std::int64_t rotary_pairs = 256;  // of a head, turned at once

// cos and sin of angles first, first + 1, ... of one position, in double: a float product position * frequency is wrong by radians at 1e6.
void rotary_table(const Rotary& r, std::int64_t position, std::int64_t first, std::int64_t count, float* cosine, float* sine) {
    for (std::int64_t i = 0; i < count; ++i) {
        const double angle = static_cast<double>(position) * std::pow(r.base, -2.0 * static_cast<double>(first + i) / static_cast<double>(r.d));
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(r.inverse ? -std::sin(angle) : std::sin(angle));
    }
}

// Turns the pairs (x[i], x[i + half]).
template <class T>
void rotate_pairs(const T* x, T* y, const float* cosine, const float* sine, std::int64_t half, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float a = load(x[i]), b = load(x[i + half]);
        store(y[i], a * cosine[i] - b * sine[i]);
        store(y[i + half], b * cosine[i] + a * sine[i]);
    }
}

}  // namespace

void CpuKernels::rotary(const Rotary& r, const void* x, void* y) {
    require(r.d % 2 == 0, "rotary: the head size must be even");
    with_type(r.t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        T* py = static_cast<T*>(y);
#pragma omp parallel for schedule(static) if (r.b * r.s * r.n * r.d >= parallel_grain)
        for (std::int64_t s = 0; s < r.s; ++s)
            for (std::int64_t first = 0; first < r.d / 2; first += rotary_pairs) {
                const std::int64_t count = std::min(rotary_pairs, r.d / 2 - first);
                float cosine[rotary_pairs], sine[rotary_pairs];
                rotary_table(r, r.position[s], first, count, cosine, sine);
                for (std::int64_t b = 0; b < r.b; ++b)
                    for (std::int64_t n = 0; n < r.n; ++n) {
                        const std::int64_t at = ((b * r.s + s) * r.n + n) * r.d + first;
                        rotate_pairs(px + at, py + at, cosine, sine, r.d / 2, count);
                    }
            }
    });
}

void CpuKernels::cast(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) {
    with_type(src_type, [&]<class S>(S) {
        with_type(dst_type, [&]<class D>(D) {
            const S* ps = static_cast<const S*>(src);
            D* pd = static_cast<D*>(dst);
            if constexpr (std::is_same_v<S, D>)
                each_element(count, [=](std::int64_t i) { pd[i] = ps[i]; });
            else
                each_element(count, [=](std::int64_t i) { store(pd[i], load(ps[i])); });
        });
    });
}

void CpuKernels::accumulate(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) {
    with_type(src_type, [&]<class S>(S) {
        with_type(dst_type, [&]<class D>(D) {
            const S* ps = static_cast<const S*>(src);
            D* pd = static_cast<D*>(dst);
            each_element(count, [=](std::int64_t i) { store(pd[i], load(pd[i]) + load(ps[i])); });
        });
    });
}

void CpuKernels::zero(void* dst, std::int64_t bytes) {
    constexpr std::int64_t piece = std::int64_t{1} << 20;
    auto* p = static_cast<unsigned char*>(dst);
#pragma omp parallel for schedule(static) if (bytes > piece)
    for (std::int64_t first = 0; first < bytes; first += piece)
        std::memset(p + first, 0, static_cast<std::size_t>(std::min(piece, bytes - first)));
}

void CpuKernels::gather(const void* from, std::span<const Extent> extents, std::int64_t element_bytes, void* to) {
    const auto* const source = static_cast<const std::byte*>(from);
    auto* next = static_cast<std::byte*>(to);
    for (const Extent& e : extents) {
        std::memcpy(next, source + e.offset * element_bytes, static_cast<std::size_t>(e.count * element_bytes));
        next += e.count * element_bytes;
    }
}

void CpuKernels::repeat(const std::int64_t* values, std::int64_t count, std::int64_t rows, std::int32_t* to) {
    for (std::int64_t row = 0; row < rows; ++row, to += count)
        for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::int32_t>(values[i]);
}

}  // namespace quadrille

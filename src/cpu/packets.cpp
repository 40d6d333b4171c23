#include "base/random.hpp"
#include "base/rounding.hpp"
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include "kernels/packet_arithmetic.hpp"
#include "kernels/updates.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace quadrille {
namespace {

constexpr std::int64_t block = packing_block;

template <class T>
std::uint32_t largest(const T* x) {
    std::uint32_t most = 0;
    for (std::int64_t i = 0; i < block; ++i) most = std::max(most, magnitude(load(x[i])));
    return most;
}

template <class T>
T read(const std::byte* from) {
    T x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
template <class T>
void write(std::byte* to, T x) { std::memcpy(to, &x, sizeof x); }

// ---- one block, packed: said(i) = what the packet says of element i, if anyone asks ----

template <class T, class Said>
void pack_bf16(const T* x, std::byte* to, Said said) {
    for (std::int64_t i = 0; i < block; ++i) {
        const bf16 y(load(x[i]));
        write(to + 2 * i, y);
        said(i, static_cast<float>(y));
    }
}

template <class T, class Said>
void pack_fp16(const T* x, std::byte* to, Said said) {
    const float factor = fp16_factor(largest(x)), back = 1.0f / factor;
    write(to, factor);
    for (std::int64_t i = 0; i < block; ++i) {
        const f16 y(load(x[i]) * factor);
        write(to + 4 + 2 * i, y);
        said(i, static_cast<float>(y) * back);
    }
}

template <class T, class Said>
void pack_qsgd(const T* x, std::byte* to, int bits, std::uint64_t key, std::int64_t first, Said said) {
    const QsgdSteps steps(largest(x), bits);
    write(to, steps.step);
    std::array<std::uint8_t, block> level;
    for (std::int64_t i = 0; i < block; ++i) {
        const float y = steps.of(load(x[i]), random_bits(key, static_cast<std::uint64_t>(first + i)));
        level[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(y + steps.levels);
        said(i, y * steps.step);
    }
    for (std::int64_t i = 0; i < block; i += 8, to += bits) {  // eight elements are so many bytes
        std::uint64_t word = 0;
        for (std::int64_t k = 0; k < 8; ++k) word |= std::uint64_t{level[static_cast<std::size_t>(i + k)]} << (k * bits);
        for (int k = 0; k < bits; ++k) to[4 + k] = static_cast<std::byte>(word >> (8 * k));
    }
}

// The k-th largest magnitude of n elements, digit by digit, and how many of just that are among the k largest.
struct Threshold { std::uint32_t key; std::int64_t ties; };
template <class T>
Threshold kth_largest(const T* x, std::int64_t n, std::int64_t k) {
    Threshold t{0, k};
    int above = 31;  // bits that are known
    for (const int shift : {20, 10, 0}) {
        std::array<std::int64_t, 2048> found{};
        for (std::int64_t i = 0; i < n; ++i) {
            const std::uint32_t key = magnitude(load(x[i]));
            if (above == 31 || key >> above == t.key >> above) ++found[key >> shift & ((1u << (above - shift)) - 1)];
        }
        std::size_t digit = (std::size_t{1} << (above - shift)) - 1;
        while (found[digit] < t.ties) t.ties -= found[digit--];
        t.key |= static_cast<std::uint32_t>(digit) << shift;
        above = shift;
    }
    return t;
}

// The values of the largest, then their places; of equals, the first ones.
template <class T, class Said>
void pack_topk(const T* x, std::int64_t n, std::int64_t k, std::byte* to, Said said) {
    Threshold t = kth_largest(x, n, k);
    std::byte *value = to, *place = to + 4 * k;
    for (std::int64_t i = 0; i < n; ++i) {
        const float v = load(x[i]);
        const std::uint32_t key = magnitude(v);
        if (key < t.key || (key == t.key && t.ties-- <= 0)) continue;
        write(value, v);
        write(place, static_cast<std::uint16_t>(i));
        value += 4;
        place += 2;
        said(i, v);
    }
}

// What a method packs together, and where the b-th such block of a packet begins.
std::int64_t grain_of(const Packing& p) { return p.method == PackingMethod::topk ? topk_block : block; }

template <class T, class Said>
void pack(const Compress& c, const T* x, std::int64_t first, std::int64_t n, std::byte* to, Said said) {
    switch (c.packing.method) {
        case PackingMethod::bf16: return pack_bf16(x, to, said);
        case PackingMethod::fp16: return pack_fp16(x, to, said);
        case PackingMethod::topk: return pack_topk(x, n, topk_count(c.packing, n), to, said);
        case PackingMethod::qsgd: return pack_qsgd(x, to, c.packing.bits, c.key, first, said);
        case PackingMethod::none: require(false, "cpu: packets of no method");
    }
}

// All blocks of all slices, shared by the team. With `unsent`, x is there and becomes what is left.
template <class T>
void pack_all(const Compress& c, const T* x, float* unsent, std::byte* packets) {
    const std::int64_t grain = grain_of(c.packing), blocks = ceil_div(c.count, grain);
    const std::int64_t whole = packet_bytes(c.packing, grain), bytes = packet_bytes(c.packing, c.count);
    const float back = 1.0f / c.scale;
#pragma omp parallel for collapse(2) schedule(static) if (c.slices * c.count >= parallel_grain)
    for (std::int64_t s = 0; s < c.slices; ++s)
        for (std::int64_t b = 0; b < blocks; ++b) {
            const std::int64_t first = s * c.count + b * grain, n = std::min(grain, c.count - b * grain);
            std::byte* const to = packets + s * bytes + b * whole;
            if (!unsent) {
                pack(c, x + first, first, n, to, [](std::int64_t, float) {});
                continue;
            }
            float* const left = unsent + first;
            pack(c, x + first, first, n, to, [left](std::int64_t i, float said) { left[i] -= said; });
            if (back != 1.0f)
                for (std::int64_t i = 0; i < n; ++i) left[i] *= back;
        }
}

// ---- one block of one packet added to `sum` ----

void add_bf16(const std::byte* from, float* sum) {
    for (std::int64_t i = 0; i < block; ++i) sum[i] += static_cast<float>(read<bf16>(from + 2 * i));
}

void add_fp16(const std::byte* from, float* sum) {
    const float back = 1.0f / read<float>(from);
    for (std::int64_t i = 0; i < block; ++i) sum[i] += static_cast<float>(read<f16>(from + 4 + 2 * i)) * back;
}

void add_qsgd(const std::byte* from, int bits, float* sum) {
    const float step = read<float>(from), levels = qsgd_levels(bits);
    const std::uint64_t mask = (1u << bits) - 1;
    from += 4;
    for (std::int64_t i = 0; i < block; i += 8, from += bits) {
        std::uint64_t word = 0;
        for (int k = 0; k < bits; ++k) word |= static_cast<std::uint64_t>(from[k]) << (8 * k);
        for (std::int64_t k = 0; k < 8; ++k) sum[i + k] += (static_cast<float>(word >> (k * bits) & mask) - levels) * step;
    }
}

// Elements [first, first + block) of a topk block of which k are there.
void add_topk(const std::byte* from, std::int64_t k, std::int64_t first, float* sum) {
    const std::byte* const places = from + 4 * k;
    std::int64_t low = 0, high = k;  // the first entry whose place is not below `first`
    while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        if (read<std::uint16_t>(places + 2 * middle) < first) low = middle + 1;
        else high = middle;
    }
    for (; low < k; ++low) {
        const std::int64_t place = read<std::uint16_t>(places + 2 * low) - first;
        if (place >= block) return;
        sum[place] += read<float>(from + 4 * low);
    }
}

void add_block(const Packing& p, const std::byte* packet, std::int64_t b, std::int64_t count, float* sum) {
    switch (p.method) {
        case PackingMethod::bf16: return add_bf16(packet + b * 2 * block, sum);
        case PackingMethod::fp16: return add_fp16(packet + b * packet_bytes(p, block), sum);
        case PackingMethod::qsgd: return add_qsgd(packet + b * packet_bytes(p, block), p.bits, sum);
        case PackingMethod::topk: {
            const std::int64_t at = b * block / topk_block, n = std::min(topk_block, count - at * topk_block);
            return add_topk(packet + at * packet_bytes(p, topk_block), topk_count(p, n), b * block - at * topk_block, sum);
        }
        case PackingMethod::none: require(false, "cpu: packets of no method");
    }
}

}  // namespace

void CpuKernels::compress(const Compress& c, std::byte* packets) {
    require(c.count % block == 0, "cpu: a packet is of whole blocks");
    with_type(c.type, [&]<class T>(T) {
        const T* g = static_cast<const T*>(c.gradient);
        if (!c.residual) return pack_all(c, g, nullptr, packets);
        const float *const r = c.residual, scale = c.scale;
        float* const x = c.unsent;
        each_element(c.slices * c.count, [=](std::int64_t i) { x[i] = load(g[i]) + scale * r[i]; });
        pack_all(c, static_cast<const float*>(x), x, packets);
    });
}

void CpuKernels::decompress(const Packing& packing, const std::byte* packets, std::int64_t n, void* sum, DType type, std::int64_t count) {
    const std::int64_t bytes = packet_bytes(packing, count);
    with_type(type, [&]<class T>(T) {
        T* const to = static_cast<T*>(sum);
#pragma omp parallel for schedule(static) if (n * count >= parallel_grain)
        for (std::int64_t b = 0; b < count / block; ++b) {
            alignas(64) std::array<float, block> total{};
            for (std::int64_t k = 0; k < n; ++k) add_block(packing, packets + k * bytes, b, count, total.data());
            for (std::int64_t i = 0; i < block; ++i) store(to[b * block + i], total[static_cast<std::size_t>(i)]);
        }
    });
}

void CpuKernels::retain(float* residual, const float* unsent, std::int64_t count, const double* norm2, double* squares, void* workspace) {
    if (update_made(*norm2)) cast(unsent, DType::f32, residual, DType::f32, count);
    const Extent whole{0, count};
    sum_squares(residual, DType::f32, {&whole, 1}, squares, workspace);
}

}  // namespace quadrille

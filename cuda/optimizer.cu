// Updates of many slices by one launch, each element read and written once: AdamW moves 4 bytes each of master, m and v there and back, the gradient
// in, the weight out. The slices travel as arguments of the kernel, some dozens at a time.
//
// The slices of one flat buffer begin at any element, but at the same one in each of their arrays: a group is four elements at a multiple of 16 bytes
// of the master, so that every array is accessed four elements at a time.
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/typed.cuh"
#include "kernels/updates.hpp"

#include <algorithm>
#include <array>

namespace quadrille {
namespace {

using namespace cuda;

constexpr unsigned update_threads = 256;
constexpr std::int64_t block_elements = 4 * update_threads;
constexpr std::size_t slices_at_once = 44;

struct Slice {
    ParameterSlice at;
    std::int64_t first_block;
    int shift;   // elements of the master behind a multiple of 16 bytes
    bool whole;  // all arrays have that shift
};

struct Slices {
    std::array<Slice, slices_at_once> slice;
    int size = 0;
    std::int64_t blocks = 0;

    void add(const ParameterSlice& s, bool moments) {
        Slice& to = slice[static_cast<std::size_t>(size++)];
        to.at = s;
        to.first_block = blocks;
        to.shift = behind_four(s.master, DType::f32);
        to.whole = behind_four(s.gradient, s.gradient_type) == to.shift && (!s.weight || behind_four(s.weight, s.weight_type) == to.shift);
        if (moments) to.whole = to.whole && behind_four(s.m, DType::f32) == to.shift && behind_four(s.v, DType::f32) == to.shift;
        blocks += (s.count + to.shift + block_elements - 1) / block_elements;
    }
};
static_assert(sizeof(Slices) < 4000, "kernels take 4 KiB of arguments");

// The slice that a block works on.
__device__ __forceinline__ int slice_of(const Slices& s, std::int64_t block) {
    int low = 0, high = s.size - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (s.slice[static_cast<std::size_t>(middle)].first_block <= block) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The threads' groups of four: update(decays, g, master, m, v) of each element.
template <bool moments, class Update>
__device__ __forceinline__ void update_group(const Slices& slices, float factor, Update update) {
    const Slice& s = slices.slice[static_cast<std::size_t>(slice_of(slices, blockIdx.x))];
    const std::int64_t first = (blockIdx.x - s.first_block) * block_elements + 4 * static_cast<std::int64_t>(threadIdx.x) - s.shift;
    if (s.whole && first >= 0 && first + 4 <= s.at.count) {
        float g[4], master[4], m[4] = {}, v[4] = {};
        load_four_as(s.at.gradient, s.at.gradient_type, first, g);
        load_four<float>(s.at.master, first, master);
        if (moments) load_four<float>(s.at.m, first, m), load_four<float>(s.at.v, first, v);
        for (int i = 0; i < 4; ++i) master[i] = update(s.at.decays, factor * g[i], master[i], m[i], v[i]);
        store_four<float>(s.at.master, first, master);
        if (moments) store_four<float>(s.at.m, first, m), store_four<float>(s.at.v, first, v);
        if (s.at.weight) store_four_as(s.at.weight, s.at.weight_type, first, master);
        return;
    }
    for (std::int64_t i = first < 0 ? 0 : first; i < first + 4 && i < s.at.count; ++i) {
        float m = moments ? s.at.m[i] : 0.0f, v = moments ? s.at.v[i] : 0.0f;
        const float master = update(s.at.decays, factor * load_as(s.at.gradient, s.at.gradient_type, i), s.at.master[i], m, v);
        s.at.master[i] = master;
        if (moments) s.at.m[i] = m, s.at.v[i] = v;
        if (s.at.weight) store_as(s.at.weight, s.at.weight_type, i, master);
    }
}

__global__ void __launch_bounds__(update_threads) adamw_slices(const Slices slices, const AdamWFactors a, const Clip clip) {
    if (!update_made(*clip.norm2)) return;
    update_group<true>(slices, gradient_factor(clip), [&](bool decays, float g, float master, float& m, float& v) {
        return adamw_element(a, decays ? a.weight_decay : 0.0f, g, master, m, v);
    });
}

__global__ void __launch_bounds__(update_threads) sgd_slices(const Slices slices, float lr, float weight_decay, const Clip clip) {
    if (!update_made(*clip.norm2)) return;
    update_group<false>(slices, gradient_factor(clip), [&](bool decays, float g, float master, float&, float&) {
        return sgd_element(lr, decays ? weight_decay : 0.0f, g, master);
    });
}

// start(slices) once for every few dozen slices.
template <class Start>
void in_batches(std::span<const ParameterSlice> slices, bool moments, Start start) {
    while (!slices.empty()) {
        const std::size_t n = std::min(slices.size(), slices_at_once);
        Slices now;
        for (const ParameterSlice& s : slices.first(n)) now.add(s, moments);
        start(now);
        slices = slices.subspan(n);
    }
}

Grid grid_of(const Slices& s) { return {static_cast<unsigned>(s.blocks), update_threads}; }

}  // namespace

void CudaKernels::adamw(std::span<const ParameterSlice> slices, const AdamW& a, const Clip& clip) {
    in_batches(slices, true, [&](const Slices& now) { launch(adamw_slices, grid_of(now), stream_, now, AdamWFactors(a), clip); });
}

void CudaKernels::sgd(std::span<const ParameterSlice> slices, const Sgd& a, const Clip& clip) {
    const auto lr = static_cast<float>(a.lr), weight_decay = static_cast<float>(a.weight_decay);
    in_batches(slices, false, [&](const Slices& now) { launch(sgd_slices, grid_of(now), stream_, now, lr, weight_decay, clip); });
}

}  // namespace quadrille

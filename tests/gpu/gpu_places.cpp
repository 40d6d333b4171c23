// Where a GPU's kernels choose among ways by the places of buffers and by sizes that the tests of the interface do not have: each way gives the same
// as the others, and reads and writes nothing beside its buffers.
#include "base/random.hpp"
#include "kernels/device.hpp"
#include "kernels/reference.hpp"

#include <functional>
#include <numeric>

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Elements of T's size at a place that is `shift` elements behind a multiple of 64 bytes, with a guard on both sides.
class Placed {
  public:
    Placed(const Stored& s, std::int64_t shift) : at_(64 + shift * bytes_of(s.t)), size_(s.bytes.size()), memory_(memory_bytes(), 0x5A) {
        std::memcpy(data(), s.bytes.data(), size_);
    }
    unsigned char* data() { return memory_.data() + (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64 + at_; }
    std::vector<unsigned char> bytes() { return {data(), data() + size_}; }
    bool guarded() {
        const auto whole = [](unsigned char b) { return b == 0x5A; };
        return std::all_of(memory_.data(), data(), whole) && std::all_of(data() + size_, memory_.data() + memory_.size(), whole);
    }

  private:
    std::size_t memory_bytes() const { return static_cast<std::size_t>(at_) + size_ + 192; }
    std::int64_t at_;
    std::size_t size_;
    std::vector<unsigned char> memory_;
};

// f(operands' places, the result's): the same bits wherever they lie.
void same_anywhere(const std::vector<Stored>& operands, const Stored& result, const std::function<void(std::vector<Placed>&, Placed&)>& f) {
    std::vector<unsigned char> aligned;
    for (const std::int64_t shift : {0, 1, 3}) {
        std::vector<Placed> from;
        for (const Stored& o : operands) from.emplace_back(o, shift);
        Placed to(result, shift);
        f(from, to);
        CHECK(to.guarded());
        for (Placed& p : from) CHECK(p.guarded());
        if (shift == 0) aligned = to.bytes();
        CHECK(to.bytes() == aligned);
    }
}

constexpr std::int64_t sizes[] = {8, 24, 1000, 4096, 9001};

}  // namespace

TEST_CASE("maps: packs, tails and single elements") {
    for (const DType t : storage_types)
        for (const std::int64_t count : sizes) {
            const Stored a = operand(count, t, 1).stored, b = operand(count, t, 2).stored;
            same_anywhere({a, b}, garbage(count, t), [&](auto& x, Placed& y) { kernels()->add(x[0].data(), x[1].data(), y.data(), count, t); });
            same_anywhere({a}, garbage(count, t), [&](auto& x, Placed& y) { kernels()->gelu(x[0].data(), y.data(), count, t); });
            for (const DType to : storage_types)
                same_anywhere({a}, garbage(count, to), [&](auto& x, Placed& y) { kernels()->cast(x[0].data(), t, y.data(), to, count); });
        }
}

TEST_CASE("conversions of the device's own: every 16-bit number to fp32 and back") {
    for (const DType t : {DType::bf16, DType::f16}) {
        Stored all{t, std::vector<unsigned char>(2 << 16)};
        for (unsigned i = 0; i < 2u << 16; ++i) all.bytes[i] = static_cast<unsigned char>(i % 2 == 0 ? i / 2 : i >> 9);
        Stored wide = garbage(1 << 16, DType::f32), back = garbage(1 << 16, t);
        kernels()->cast(all.data(), t, wide.data(), DType::f32, 1 << 16);
        kernels()->cast(wide.data(), DType::f32, back.data(), t, 1 << 16);
        const Values v = values(all), w = values(wide), u = values(back);
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < v.size(); ++i) {
            const bool same = std::isnan(v[i]) ? std::isnan(w[i]) && std::isnan(u[i]) : v[i] == w[i] && v[i] == u[i];
            wrong += !same;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("rows: biases, dropout and sums of columns") {
    for (const DType t : storage_types)
        for (const std::int64_t cols : {8, 264, 520, 1000})
            for (const std::int64_t rows : {1, 33, 200}) {
                const Stored x = operand(rows * cols, t, 3).stored, bias = operand(cols, t, 4).stored;
                same_anywhere({x, bias}, garbage(rows * cols, t),
                              [&](auto& p, Placed& y) { kernels()->add_bias(p[0].data(), p[1].data(), y.data(), rows, cols, t); });
                std::vector<std::int64_t> position(static_cast<std::size_t>(rows)), channel(static_cast<std::size_t>(cols));
                std::iota(position.begin(), position.end(), 7), std::iota(channel.begin(), channel.end(), 3);
                const std::int64_t sample = 5;
                Dropout d{.b = 1, .s = rows, .h = cols, .sample_index = &sample, .position = position.data(), .channel_index = channel.data()};
                d.global_s = 1000, d.global_h = 2000, d.rate = 0.25, d.key = 11, d.t = t;
                same_anywhere({x}, garbage(rows * cols, t), [&](auto& p, Placed& y) { kernels()->dropout(d, p[0].data(), y.data()); });
                Workspace workspace(kernels()->column_sum_workspace(rows, cols));
                same_anywhere({x}, garbage(cols, DType::f32), [&](auto& p, Placed& y) {
                    kernels()->column_sum(p[0].data(), t, y.data(), DType::f32, rows, cols, false, workspace.data());
                });
            }
}

TEST_CASE("norms: rows of a warp, of a block, in registers and read again, to what float64 gives") {
    for (const DType t : storage_types)
        for (const bool rms : {false, true})
            for (const std::int64_t h : {8, 768, 1032, 2048, 8200, 17000}) {
                Norm n{.rows = 9, .h = h, .rms = rms, .t = t};
                const Operand x = operand(n.rows * h, t, 5), gain = operand(h, t, 6), dy = operand(n.rows * h, t, 7);
                Values want(x.x.size());
                for (std::int64_t r = 0; r < n.rows; ++r) {
                    const auto first = x.x.begin() + r * h;
                    const double mean = rms ? 0.0 : std::accumulate(first, first + h, 0.0) / static_cast<double>(h);
                    double squares = 0;
                    for (auto p = first; p != first + h; ++p) squares += (*p - mean) * (*p - mean);
                    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(h) + static_cast<double>(n.eps));
                    for (std::int64_t c = 0; c < h; ++c)
                        want[static_cast<std::size_t>(r * h + c)] = (first[c] - mean) * rstd * gain.x[static_cast<std::size_t>(c)];
                }
                Values dx_want;
                for (const std::int64_t shift : {0, 1}) {
                    Placed px(x.stored, shift), pg(gain.stored, shift), y(garbage(n.rows * h, t), shift), dx(garbage(n.rows * h, t), shift);
                    kernels()->norm(n, px.data(), pg.data(), nullptr, y.data());
                    CHECK(y.guarded());
                    CHECK(error(Stored{t, y.bytes()}, want, rounding(t) + 3e-6, 4e-6) <= 1.0);
                    Placed pd(dy.stored, shift);
                    kernels()->norm_dx(n, px.data(), pg.data(), pd.data(), dx.data());
                    CHECK(dx.guarded());
                    const Values got = values({t, dx.bytes()});
                    if (shift == 0) dx_want = got;
                    CHECK(error(got, dx_want, 2 * rounding(t) + 3e-6, 2e-5) <= 1.0);
                }
            }
}

TEST_CASE("gradients of norms' parameters: several slabs and groups of rows") {
    // 9 MiB of f32 in a group of 35 rows: a slab each.
    for (const bool rms : {false, true}) {
        Norm n{.rows = 70, .h = std::int64_t{1} << 16, .rms = rms};
        Values x(static_cast<std::size_t>(n.rows * n.h)), dy(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 37 % 101) - 50.0, dy[i] = static_cast<double>(i * 53 % 17) - 8.0;
        const Stored sx = stored(x, n.t), sdy = stored(dy, n.t);
        Stored dgain = garbage(n.h, n.t), dbias = dgain;
        Workspace workspace(kernels()->norm_dw_workspace(n));
        kernels()->norm_dw(n, sx.data(), sdy.data(), dgain.data(), dbias.data(), n.t, false, workspace.data());
        const auto h = static_cast<std::size_t>(n.h);
        Values gain_want(h, 0.0), bias_want(h, 0.0);
        for (std::size_t r = 0; r < x.size(); r += h) {
            double mean = 0.0, squares = 0.0;
            for (std::size_t c = 0; c < h; ++c) mean += rms ? 0.0 : x[r + c] / static_cast<double>(h);
            for (std::size_t c = 0; c < h; ++c) squares += (x[r + c] - mean) * (x[r + c] - mean);
            const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(h) + static_cast<double>(n.eps));
            for (std::size_t c = 0; c < h; ++c) gain_want[c] += dy[r + c] * (x[r + c] - mean) * rstd, bias_want[c] += dy[r + c];
        }
        CHECK(error(dgain, gain_want, 1e-5, 1e-4) <= 1.0);
        CHECK(error(dbias, bias_want, 1e-6, 1e-6) <= 1.0);
    }
}

TEST_CASE("gathers: every unit, more runs than a launch describes") {
    std::vector<unsigned char> from(40000), to(40000), want;
    std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
    for (const std::int64_t element : {1, 2, 4, 8})
        for (const std::int64_t step : {1, 5, 16}) {
            std::vector<Extent> extents;
            for (std::int64_t at = 0, i = 0; (at + 7 + i % 3) * element <= 4000; at += 13 * step + i % 2, ++i) extents.push_back({at, 4 + i % 3});
            for (std::int64_t i = 0; i < 100; ++i) extents.push_back({500 + i * i % 400, 1 + i % 2});
            want.clear();
            for (const Extent& e : extents) want.insert(want.end(), from.begin() + e.offset * element, from.begin() + (e.offset + e.count) * element);
            std::fill(to.begin(), to.end(), 0);
            kernels()->gather(from.data(), extents, element, to.data());
            CHECK(std::equal(want.begin(), want.end(), to.begin()));
            CHECK(to[want.size()] == 0);
        }
}

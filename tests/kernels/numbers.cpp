// Numbers of the step: exact.
#include "kernels/device.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("count counts the bytes that are not 0, of all parts, beside what was there") {
    std::vector<std::vector<std::uint8_t>> masks;
    std::vector<MaskPart> parts;
    std::mt19937 engine(2);
    double want = 0;
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{4096}, std::size_t{100003}}) {
        masks.emplace_back(n);
        for (auto& m : masks.back()) m = engine() % 3 == 0 ? static_cast<std::uint8_t>(1 + engine() % 255) : 0, want += m != 0;
    }
    for (const auto& m : masks) parts.push_back({m.data(), std::ssize(m)});
    parts.push_back({masks.back().data() + 3, 1000});  // off any alignment
    want += static_cast<double>(std::count_if(masks.back().begin() + 3, masks.back().begin() + 1003, [](std::uint8_t m) { return m != 0; }));
    std::vector<double> total = {std::nan("")};
    kernels()->count(parts, total.data(), false);
    CHECK(total[0] == want);
    kernels()->count(parts, total.data(), true);
    CHECK(total[0] == 2 * want);
    kernels()->count({}, total.data(), false);
    CHECK(total[0] == 0.0);
}

TEST_CASE("reciprocal and multiply") {
    const std::vector<double> x = {3.0, 0.0, 0x1p-1000, 7.0};
    std::vector<double> y(4);
    for (std::size_t i = 0; i < 4; ++i) kernels()->reciprocal(&x[i], &y[i]);
    CHECK(y == std::vector<double>{1.0 / 3.0, 0.0, 0x1p+1000, 1.0 / 7.0});
    kernels()->multiply(&x[0], &x[3], &y[0]);
    CHECK(y[0] == 21.0);
    kernels()->multiply(&y[1], &y[0], &y[1]);  // in place
    CHECK(y[1] == 0.0);
}

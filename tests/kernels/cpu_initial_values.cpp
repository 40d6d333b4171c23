// Initial values against random.hpp.
#include "base/random.hpp"
#include "cpu/initial_values.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("fill_uniform fills its interval evenly, by global element") {
    std::vector<float> whole(10000), cut(5, 9.0f);
    const Run all{.offset = 0, .element = 0, .count = 10000}, run{.offset = 2, .element = 700, .count = 2};
    fill_uniform(whole.data(), {&all, 1}, 42, 0.25);
    fill_uniform(cut.data(), {&run, 1}, 42, 0.25);
    CHECK(cut == std::vector<float>{9.0f, 9.0f, whole[700], whole[701], 9.0f});
    std::array<int, 10> counts{};
    for (const float x : whole) {
        CHECK(std::abs(x) <= 0.25f);
        ++counts[std::min<std::size_t>(9, static_cast<std::size_t>((x + 0.25f) * 20.0f))];
    }
    for (const int n : counts) CHECK(std::abs(n - 1000) < 150);
}

TEST_CASE("fill_normal draws by global element and touches the runs only") {
    std::vector<float> whole(1000), cut(20, 9.0f);
    const Run all{.offset = 0, .element = 0, .count = 1000};
    fill_normal(whole.data(), {&all, 1}, 42, 0.02);
    const Run runs[] = {{.offset = 1, .element = 500, .count = 4}, {.offset = 8, .element = 3, .count = 7}};
    fill_normal(cut.data(), runs, 42, 0.02);
    for (std::size_t i = 0; i < 20; ++i) {
        const float want = i >= 1 && i < 5 ? whole[500 + i - 1] : i >= 8 && i < 15 ? whole[3 + i - 8] : 9.0f;
        CHECK(cut[i] == want);
    }
    CHECK(whole[17] == static_cast<float>(0.02 * random_normal(42, 17)));
    double sum = 0.0, squares = 0.0;
    for (const float x : whole) sum += x, squares += static_cast<double>(x) * x;
    CHECK(std::abs(sum / 1000.0) < 0.002);
    CHECK(std::sqrt(squares / 1000.0) == doctest::Approx(0.02).epsilon(0.1));
}

// Operands of more than 2^31 elements: what lies behind that index is read and written, and nothing else stands in for it. They take little
// memory, since all but their first and last pages are one piece that is mapped again and again; what stands there is not looked at.
#include "cpu/kernels.hpp"
#include "kernels/reference.hpp"

#include <sys/mman.h>
#include <unistd.h>

using namespace quadrille;
using namespace quadrille::test;

namespace {

constexpr std::int64_t rows = 65537, cols = 32768, count = rows * cols;  // 2^31 and one row
constexpr std::int64_t behind = std::int64_t{1} << 31;
static_assert(count == behind + cols);
const DType t = DType::bf16;

// `count` zeros. The first piece and all from element 2^31 on have memory of their own.
class Large {
  public:
    Large() {
        void* const space = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        REQUIRE(space != MAP_FAILED);
        x_ = static_cast<bf16*>(space);
        const int file = memfd_create("large", 0);
        REQUIRE(ftruncate(file, 3 * piece) == 0);
        for (std::int64_t at = 0; at < size; at += piece) {
            const std::int64_t from = at == 0 ? 0 : at < behind * 2 ? piece : 2 * piece;
            const auto bytes = static_cast<std::size_t>(std::min(piece, size - at));
            void* const there = mmap(static_cast<std::byte*>(space) + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file,
                                     from);
            REQUIRE(there != MAP_FAILED);
        }
        close(file);
    }
    ~Large() { munmap(x_, size); }
    Large(const Large&) = delete;
    Large& operator=(const Large&) = delete;
    bf16* data() { return x_; }
    void set(std::int64_t i, float x) { x_[i] = bf16(x); }
    float at(std::int64_t i) const { return static_cast<float>(x_[i]); }

  private:
    static constexpr std::int64_t size = count * 2, piece = std::int64_t{8} << 20;
    bf16* x_ = nullptr;
};

}  // namespace

TEST_CASE("36: elementwise kernels and sums") {
    CpuKernels cpu(omp_get_max_threads());
    Large x, y;
    for (const std::int64_t i : {std::int64_t{0}, behind, count - 1}) x.set(i, 3.0f);
    cpu.add(x.data(), x.data(), y.data(), count, t);
    for (const std::int64_t i : {std::int64_t{0}, behind, count - 1}) CHECK(y.at(i) == 6.0f);
    CHECK(y.at(count - 2) == 0.0f);
    std::vector<float> sums(cols);
    cpu.column_sum(y.data(), t, sums.data(), DType::f32, rows, cols, false, nullptr);  // elements 0 and 2^31 stand in column 0
    CHECK(sums[0] == 12.0f);
    CHECK(sums[cols - 1] == 6.0f);
    CHECK(std::count(sums.begin(), sums.end(), 0.0f) == cols - 2);
    Workspace workspace(cpu.sum_squares_workspace(count, 1));
    const Extent whole{0, count};
    double squares = 0;
    cpu.sum_squares(y.data(), t, {&whole, 1}, &squares, workspace.data());
    CHECK(squares == 3 * 36.0);
    cpu.cast(y.data(), t, x.data(), t, count);
    CHECK(x.at(0) == 6.0f);
    CHECK(x.at(count - 1) == 6.0f);
    cpu.zero(y.data(), count * 2);
    CHECK(y.at(0) == 0.0f);
    CHECK(y.at(behind) == 0.0f);
    CHECK(y.at(count - 1) == 0.0f);
}

TEST_CASE("36: the last row of a large table, and its gradient") {
    CpuKernels cpu(omp_get_max_threads());
    Large table;
    const Embedding e{.tokens = 2, .h = cols, .rows = rows};
    const std::vector<std::int32_t> ids = {0, static_cast<std::int32_t>(rows - 1)};
    for (std::int64_t c = 0; c < cols; ++c) table.set(c, 1.0f), table.set(count - cols + c, 5.0f);
    std::vector<bf16> y(static_cast<std::size_t>(2 * cols));
    cpu.embedding(e, ids.data(), table.data(), y.data(), t);
    CHECK(static_cast<float>(y.front()) == 1.0f);
    CHECK(static_cast<float>(y.back()) == 5.0f);
    Workspace workspace(cpu.embedding_dw_workspace(e));
    cpu.embedding_dw(e, ids.data(), y.data(), t, table.data(), t, true, workspace.data());
    CHECK(table.at(0) == 2.0f);
    CHECK(table.at(count - 1) == 10.0f);
    CHECK(table.at(count - cols - 1) == 0.0f);
}

TEST_CASE("36: the last row of large logits, and its gradient") {
    CpuKernels cpu(omp_get_max_threads());
    Large logits;
    const auto n = static_cast<std::size_t>(rows);
    const Logits l{.tokens = rows, .columns = cols, .real_columns = 2, .t = t};  // the rest is padding, which costs no exponentials
    std::vector<std::int32_t> target(n, 1);
    std::vector<float> max(n), sums(2 * n), dsums(2 * n);
    logits.set(count - cols, 4.0f);
    cpu.logit_max(l, logits.data(), max.data());
    CHECK(max[0] == 0.0f);
    CHECK(max[n - 1] == 4.0f);
    cpu.logit_sums(l, logits.data(), max.data(), target.data(), sums.data());
    CHECK(sums[0] == 2.0f);
    CHECK(sums[n - 1] == doctest::Approx(1 + std::exp(-4.0)));
    CHECK(sums[2 * n - 1] == -4.0f);
    const std::vector<std::uint8_t> mask(n, 1);
    const double dloss = 1.0;
    cpu.token_loss_dx(rows, sums.data(), mask.data(), &dloss, dsums.data());
    cpu.logit_sums_dx(l, logits.data(), max.data(), target.data(), dsums.data(), logits.data());
    CHECK(logits.at(0) == 0.5f);
    CHECK(logits.at(1) == -0.5f);
    CHECK(logits.at(count - cols) == doctest::Approx(1 / (1 + std::exp(-4.0))).epsilon(0.01));
    CHECK(logits.at(count - cols + 1) == doctest::Approx(-1 / (1 + std::exp(-4.0))).epsilon(0.01));
    CHECK(logits.at(count - 1) == 0.0f);
}

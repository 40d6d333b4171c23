#include "checkpoint/boxes.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace quadrille {
namespace {

class Cutter {
  public:
    explicit Cutter(const std::vector<std::int64_t>& shape) : shape_(shape), row_(shape.size(), 1) {
        for (std::size_t d = shape.size() - 1; d > 0; --d) row_[d - 1] = row_[d] * shape[d];
    }

    // Elements first .. first + count of the part of the array that dims 0 .. dim - 1 of `at` name: what is left of a first row, whole rows, and
    // what is begun of a last one.
    void cut(std::size_t dim, Box at, std::int64_t first, std::int64_t count) {
        const std::int64_t row = row_[dim], index = first / row, skipped = first % row;
        if (skipped > 0 || count < row) {
            const std::int64_t here = std::min(count, row - skipped);
            at.start[dim] = index;
            at.count[dim] = 1;
            cut(dim + 1, at, skipped, here);
            if (here < count) cut(dim, at, first + here, count - here);
            return;
        }
        at.start[dim] = index;
        at.count[dim] = count / row;
        for (std::size_t d = dim + 1; d < shape_.size(); ++d) at.start[d] = 0, at.count[d] = shape_[d];
        boxes.push_back(at);
        const std::int64_t whole = count / row * row;
        if (whole < count) cut(dim, at, first + whole, count - whole);
    }

    std::vector<Box> boxes;

  private:
    const std::vector<std::int64_t>& shape_;
    std::vector<std::int64_t> row_;  // elements from one index of a dim to the next
};

// Whether b goes on along `dim` where a ends, and is like it in all others.
bool continues(const Box& a, const Box& b, std::size_t dim) {
    for (std::size_t d = 0; d < a.start.size(); ++d)
        if (d != dim && (a.start[d] != b.start[d] || a.count[d] != b.count[d])) return false;
    return b.start[dim] == a.start[dim] + a.count[dim];
}

void join_along(std::vector<Box>& boxes, std::size_t dim) {
    std::size_t kept = 0;
    for (std::size_t i = 1; i < boxes.size(); ++i) {
        if (continues(boxes[kept], boxes[i], dim)) boxes[kept].count[dim] += boxes[i].count[dim];
        else if (++kept != i) boxes[kept] = std::move(boxes[i]);
    }
    if (!boxes.empty()) boxes.resize(kept + 1);
}

}  // namespace

std::vector<Box> boxes_of(const std::vector<std::int64_t>& shape, const Extents& runs) {
    require(!shape.empty(), "checkpoint: a scalar has no boxes");
    Cutter cutter(shape);
    for (const Extent& run : runs)
        if (run.count > 0) cutter.cut(0, {std::vector<std::int64_t>(shape.size()), std::vector<std::int64_t>(shape.size())}, run.offset, run.count);
    for (std::size_t d = shape.size(); d-- > 0;) join_along(cutter.boxes, d);
    return std::move(cutter.boxes);
}

}  // namespace quadrille

#include "checkpoint/values.hpp"

#include "base/error.hpp"
#include "cpu/kernels.hpp"

#include <algorithm>
#include <array>

namespace quadrille {
namespace {

constexpr std::int64_t wide = 4;                     // bytes of an element, at most
constexpr std::int64_t least_memory = 64 << 10;      // bytes

// Whether the host reads and writes it where it lies.
bool near(const Piece& piece) { return piece.data && !piece.far; }

Piece part_of(const Piece& piece, std::int64_t begin, std::int64_t count) {
    const std::int64_t skipped = begin * bytes_of(piece.dtype);
    Piece part = piece;
    part.element += begin;
    part.count = count;
    if (piece.data) part.data += skipped;
    else part.place += skipped;
    return part;
}

// Of memory of the host; no workspace is needed.
void cast(const void* from, DType type, void* to, DType to_type, std::int64_t count) { CpuKernels(1).cast(from, type, to, to_type, count); }

// `from` to the piece, whose values lie at `data`.
void put(const float* from, const Piece& piece, std::byte* data) {
    if (!piece.adds) return cast(from, DType::f32, data, piece.dtype, piece.count);
    constexpr std::int64_t batch = 1024;
    std::array<float, batch> sums{};
    for (std::int64_t done = 0; done < piece.count; done += batch) {
        const std::int64_t n = std::min(batch, piece.count - done);
        std::byte* const there = data + done * bytes_of(piece.dtype);
        cast(there, piece.dtype, sums.data(), DType::f32, n);
        for (std::int64_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] += from[done + i];
        cast(sums.data(), DType::f32, there, piece.dtype, n);
    }
}

// A piece that the host does not reach, in a passage's window: of the nvme tier's file the blocks that hold it, which go back whole.
class Window {
  public:
    Window(const Piece& piece, Arena& arena, const Passage& passage) : piece_(piece), arena_(arena), memory_(passage.window()) {
        bytes_ = piece.count * bytes_of(piece.dtype);
        if (piece.far) {
            arena_.device().read(memory_, piece.data, bytes_);
            return;
        }
        begin_ = piece.place / nvme_alignment * nvme_alignment;
        skipped_ = piece.place - begin_;
        bytes_ = nvme_bytes(skipped_ + bytes_);
        arena_.file().wait(arena_.file().read(begin_, memory_, bytes_));
    }
    std::byte* data() const { return memory_ + skipped_; }
    void write_back() {
        if (piece_.far) arena_.device().write(piece_.data, memory_, bytes_);
        else arena_.file().wait(arena_.file().write(begin_, memory_, bytes_));
    }

  private:
    const Piece& piece_;
    Arena& arena_;
    std::byte* memory_;
    std::int64_t begin_ = 0, bytes_ = 0, skipped_ = 0;
};

}  // namespace

std::int64_t total(const Pieces& pieces) {
    std::int64_t sum = 0;
    for (const Piece& p : pieces) sum += p.count;
    return sum;
}

Pieces portion(const Pieces& pieces, std::int64_t begin, std::int64_t count) {
    Pieces out;
    for (const Piece& p : pieces) {
        const std::int64_t first = std::max<std::int64_t>(begin, 0), last = std::min(begin + count, p.count);
        if (first < last) out.push_back(part_of(p, first, last - first));
        begin -= p.count;
        if (begin + count <= 0) break;
    }
    return out;
}

Pieces share_of(const Holding& held) {
    const Extent mine = equal_cut(total(held.pieces), held.copies, held.copy);
    return portion(held.pieces, mine.offset, mine.count);
}

Extents elements_of(const Pieces& pieces) {
    Extents runs;
    for (const Piece& p : pieces) append(runs, {p.element, p.count});
    return runs;
}

Passage::Passage(std::span<std::byte> memory) {
    if (std::ssize(memory) < least_memory) {
        own_.resize(least_memory);
        memory = own_;
    }
    capacity_ = (std::ssize(memory) - 2 * nvme_alignment) / (2 * wide);  // a window begins and ends inside blocks
    values_ = reinterpret_cast<float*>(memory.data());
    window_ = memory.data() + capacity_ * wide;
}

const float* values_in_place(const Pieces& pieces) {
    const std::byte* next = pieces.empty() ? nullptr : pieces.front().data;
    for (const Piece& p : pieces) {
        if (!near(p) || p.dtype != DType::f32 || p.data != next) return nullptr;
        next += p.count * bytes_of(p.dtype);
    }
    return pieces.empty() ? nullptr : reinterpret_cast<const float*>(pieces.front().data);
}

const float* gathered(const Pieces& pieces, Arena& arena, const Passage& passage, std::int64_t before) {
    if (const float* there = values_in_place(pieces)) return there;
    require(before + total(pieces) <= passage.capacity(), "checkpoint: more values than the passage takes");
    gather_into(passage.values() + before, pieces, arena, passage);
    return passage.values() + before;
}

void gather_into(float* to, const Pieces& pieces, Arena& arena, const Passage& passage) {
    for (const Piece& whole : pieces)
        for (std::int64_t done = 0; done < whole.count; done += passage.capacity()) {
            const Piece p = part_of(whole, done, std::min(passage.capacity(), whole.count - done));
            if (near(p)) cast(p.data, p.dtype, to, DType::f32, p.count);
            else cast(Window(p, arena, passage).data(), p.dtype, to, DType::f32, p.count);
            to += p.count;
        }
}

void scatter(const float* from, const Pieces& pieces, Arena& arena, const Passage& passage) {
    for (const Piece& whole : pieces)
        for (std::int64_t done = 0; done < whole.count; done += passage.capacity()) {
            const Piece p = part_of(whole, done, std::min(passage.capacity(), whole.count - done));
            if (near(p)) {
                put(from, p, p.data);
            } else {
                Window window(p, arena, passage);
                put(from, p, window.data());
                window.write_back();
            }
            from += p.count;
        }
}

}  // namespace quadrille

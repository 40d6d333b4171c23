#include "comm/slices.hpp"

#include <cstring>

#include "comm/reduce.hpp"
#include "comm/stream.hpp"

namespace quadrille {
namespace {

// As combine, a tile at a time.
void combine_streamed(ReduceOp op, DType dtype, const void* a_, const void* b_, void* out_, std::int64_t count) {
    constexpr std::int64_t tile_bytes = 4096;
    alignas(64) std::byte tile[tile_bytes];
    const std::int64_t bytes = bytes_of(dtype), most = tile_bytes / bytes;
    const auto *a = static_cast<const std::byte*>(a_), *b = static_cast<const std::byte*>(b_);
    auto* out = static_cast<std::byte*>(out_);
    for (std::int64_t at = 0; at < count; at += most) {
        const std::int64_t n = std::min(most, count - at);
        combine(op, dtype, a + at * bytes, b + at * bytes, tile, n);
        stream_copy(out + at * bytes, tile, static_cast<std::size_t>(n * bytes));
    }
}

}  // namespace

void SliceTable::clear(std::int64_t element_bytes) {
    bytes_ = element_bytes;
    runs_.clear();
    ends_.clear();
}

void SliceTable::begin_slice() { ends_.push_back(runs_.size()); }

void SliceTable::add(const void* data, std::int64_t count) {
    if (count == 0) return;
    // Sends only read through this pointer; MPI's and the tables' interfaces are the same for both directions.
    auto* place = static_cast<std::byte*>(const_cast<void*>(data));
    const bool first = runs_.size() == begin_of(size() - 1);
    if (!first && runs_.back().data + runs_.back().count * bytes_ == place) {
        runs_.back().count += count;
        return;
    }
    runs_.push_back({place, first ? 0 : runs_.back().first + runs_.back().count, count});
    ends_.back() = runs_.size();
}

std::int64_t SliceTable::length(int slice) const {
    const std::size_t end = ends_[static_cast<std::size_t>(slice)];
    return end == begin_of(slice) ? 0 : runs_[end - 1].first + runs_[end - 1].count;
}

std::int64_t SliceTable::longest() const {
    std::int64_t most = 0;
    for (int i = 0; i < size(); ++i) most = std::max(most, length(i));
    return most;
}

std::size_t SliceTable::find(int slice, std::int64_t element) const {
    const auto begin = runs_.begin() + static_cast<std::ptrdiff_t>(begin_of(slice));
    const auto end = runs_.begin() + static_cast<std::ptrdiff_t>(ends_[static_cast<std::size_t>(slice)]);
    const auto after = std::upper_bound(begin, end, element, [](std::int64_t e, const Run& r) { return e < r.first; });
    return static_cast<std::size_t>(after - runs_.begin()) - 1;
}

std::byte* SliceTable::direct(const Portion& p) const {
    const Run& run = runs_[find(p.slice, p.first)];
    return p.first + p.count <= run.first + run.count ? run.data + (p.first - run.first) * bytes_ : nullptr;
}

void SliceTable::pack(const Portion& p, std::byte* to) const {
    each_run(p, [&](const std::byte* data, std::int64_t at, std::int64_t n) {
        std::memcpy(to + at * bytes_, data, static_cast<std::size_t>(n * bytes_));
    });
}

void SliceTable::unpack(const Portion& p, const std::byte* from, Write write) const {
    each_run(p, [&](std::byte* data, std::int64_t at, std::int64_t n) {
        const auto bytes = static_cast<std::size_t>(n * bytes_);
        if (write == Write::streamed) stream_copy(data, from + at * bytes_, bytes);
        else std::memcpy(data, from + at * bytes_, bytes);
    });
}

void copy(const SliceTable& in, const Portion& from, const SliceTable& out, const Portion& to, std::int64_t element_bytes) {
    in.each_run(from, [&](const std::byte* source, std::int64_t at, std::int64_t n) {
        out.each_run({to.slice, to.first + at, n}, [&](std::byte* target, std::int64_t within, std::int64_t m) {
            const std::byte* piece = source + within * element_bytes;
            if (piece != target) std::memcpy(target, piece, static_cast<std::size_t>(m * element_bytes));
        });
    });
}

void combine_into(ReduceOp op, DType dtype, const SliceTable& in, const Portion& p, std::byte* slot) {
    in.each_run(p, [&](const std::byte* data, std::int64_t at, std::int64_t n) {
        std::byte* partial = slot + at * bytes_of(dtype);
        combine(op, dtype, partial, data, partial, n);
    });
}

void combine_out(ReduceOp op, DType dtype, const SliceTable& in, const Portion& p, const std::byte* slot, const SliceTable& out,
                 const Portion& to, Write write) {
    const std::int64_t bytes = bytes_of(dtype);
    in.each_run(p, [&](const std::byte* data, std::int64_t at, std::int64_t n) {
        out.each_run({to.slice, to.first + at, n}, [&](std::byte* target, std::int64_t within, std::int64_t m) {
            const auto combine_run = write == Write::streamed ? combine_streamed : combine;
            combine_run(op, dtype, data + within * bytes, slot + (at + within) * bytes, target, m);  // target may be data
        });
    });
}

}  // namespace quadrille

#include "runtime/memory_meter.hpp"

#include "runtime/addresses.hpp"

#include <algorithm>

namespace quadrille {

MemoryMeter::MemoryMeter(const Program& program, const Coordinate& at) : program_(program), uses_(program.buffers.size()) {
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
        const BufferId buffer = program.tensors[i].buffer;
        if (!program.buffers[static_cast<std::size_t>(buffer)].persistent) continue;
        const ByteRange r = range_of(program, at, static_cast<TensorId>(i));
        touch(buffer, r.begin, r.end, 0, 1);
    }
}

void MemoryMeter::touch(BufferId buffer, std::int64_t begin, std::int64_t end, std::int32_t op, std::int32_t done) {
    Use& u = uses_[static_cast<std::size_t>(buffer)];
    if (u.first < 0) u = {begin, end, op, op};
    u.begin = std::min(u.begin, begin);
    u.end = std::max(u.end, end);
    u.last = std::max(u.last, done - 1);
}

void MemoryMeter::hold(Tier tier, Book book, std::int64_t bytes) {
    BytesInUse& held = held_[static_cast<std::size_t>(tier)];
    held.bytes += bytes;
    held.books[static_cast<std::size_t>(book)] += bytes;
}

std::array<std::vector<BytesInUse>, tier_count> MemoryMeter::timeline() const {
    // What comes (1) and goes (-1) before each op; the state comes first and stays.
    struct Change { std::size_t buffer; std::int64_t sign; };
    std::vector<std::vector<Change>> changes(program_.ops.size() + 1);
    for (std::size_t b = 0; b < uses_.size(); ++b) {
        if (uses_[b].first < 0) continue;
        const bool stays = program_.buffers[b].persistent;
        changes[stays ? 0 : static_cast<std::size_t>(uses_[b].first)].push_back({b, 1});
        if (!stays) changes[static_cast<std::size_t>(uses_[b].last) + 1].push_back({b, -1});
    }
    std::array<std::vector<BytesInUse>, tier_count> timeline;
    std::array<BytesInUse, tier_count> now = held_;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        for (const Change& c : changes[i]) {
            const Buffer& b = program_.buffers[c.buffer];
            const std::int64_t bytes = (uses_[c.buffer].end - uses_[c.buffer].begin) * c.sign;
            BytesInUse& tier = now[static_cast<std::size_t>(b.tier)];
            tier.bytes += bytes;
            tier.books[static_cast<std::size_t>(b.book)] += bytes;
        }
        for (std::size_t t = 0; t < tier_count; ++t) {
            now[t].op = static_cast<std::int32_t>(i);
            if (i == 0 || now[t].books != timeline[t].back().books) timeline[t].push_back(now[t]);
        }
    }
    return timeline;
}

std::array<BytesInUse, tier_count> MemoryMeter::peaks() const {
    std::array<BytesInUse, tier_count> peaks;
    const auto all = timeline();
    for (std::size_t t = 0; t < tier_count; ++t)
        peaks[t] = *std::max_element(all[t].begin(), all[t].end(), [](const BytesInUse& a, const BytesInUse& b) { return a.bytes < b.bytes; });
    return peaks;
}

}  // namespace quadrille

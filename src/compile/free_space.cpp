#include "compile/free_space.hpp"

#include <algorithm>

namespace quadrille {
namespace {

constexpr int looks = 64;  // at so many extents for the lowest or highest

}  // namespace

void FreeSpace::open(std::int64_t offset) {
    if (offset <= end_) return;
    const std::int64_t from = end_;
    end_ = offset;
    give(from, offset - from);
}

std::int64_t FreeSpace::take(std::int64_t bytes, Fit fit) {
    const auto it = find(bytes, fit);
    if (it == by_offset_.end()) return grow(bytes);
    const auto [offset, size] = *it;
    remove(offset, size);
    if (fit == Fit::highest) {
        if (size > bytes) insert(offset, size - bytes);
        return offset + size - bytes;
    }
    if (size > bytes) insert(offset + bytes, size - bytes);
    return offset;
}

FreeSpace::Extents::const_iterator FreeSpace::best(std::int64_t bytes) const {
    const auto it = by_size_.lower_bound({bytes, 0});
    return it == by_size_.end() ? by_offset_.end() : by_offset_.find(it->second);
}

FreeSpace::Extents::const_iterator FreeSpace::find(std::int64_t bytes, Fit fit) const {
    int seen = 0;
    if (fit == Fit::lowest)
        for (auto it = by_offset_.begin(); it != by_offset_.end() && seen < looks; ++it, ++seen)
            if (it->second >= bytes) return it;
    if (fit == Fit::highest)
        for (auto it = by_offset_.end(); it != by_offset_.begin() && seen < looks; ++seen)
            if ((--it)->second >= bytes) return it;
    return best(bytes);
}

// The last free extent may reach the end: only the rest is new.
std::int64_t FreeSpace::grow(std::int64_t bytes) {
    std::int64_t offset = end_;
    if (!by_offset_.empty()) {
        const auto [last, size] = *by_offset_.rbegin();
        if (last + size == end_) {
            offset = last;
            remove(last, size);
        }
    }
    end_ = offset + bytes;
    return offset;
}

void FreeSpace::give(std::int64_t offset, std::int64_t bytes) {
    if (bytes == 0) return;
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + bytes) {
        bytes += next->second;
        remove(next->first, next->second);
        next = by_offset_.lower_bound(offset);
    }
    if (next != by_offset_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == offset) {
            offset = before->first;
            bytes += before->second;
            remove(before->first, before->second);
        }
    }
    insert(offset, bytes);
}

void FreeSpace::insert(std::int64_t offset, std::int64_t bytes) {
    by_offset_[offset] = bytes;
    by_size_.insert({bytes, offset});
}

void FreeSpace::remove(std::int64_t offset, std::int64_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
}

}  // namespace quadrille

#include "ir/cover.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace quadrille {

Cover Cover::complete(int microbatches, int uses, int first) {
    Cover c;
    for (std::int32_t use = 0; use < uses && microbatches > 0; ++use) c.runs_.push_back({use, first, microbatches});
    return c;
}

std::int64_t Cover::size() const {
    std::int64_t n = 0;
    for (const Run& r : runs_) n += r.count;
    return n;
}

Cover joined(const Cover& a, const Cover& b) {
    std::vector<Cover::Run> all;
    std::merge(a.runs_.begin(), a.runs_.end(), b.runs_.begin(), b.runs_.end(), std::back_inserter(all));
    Cover out;
    for (const Cover::Run& r : all) {
        Cover::Run* last = out.runs_.empty() || out.runs_.back().use != r.use ? nullptr : &out.runs_.back();
        if (last && r.first < last->first + last->count)
            throw TypingError(fmt::format("summed twice: microbatch or turn {}, use {}", r.first, r.use));
        if (last && r.first == last->first + last->count) last->count += r.count;
        else out.runs_.push_back(r);
    }
    return out;
}

}  // namespace quadrille

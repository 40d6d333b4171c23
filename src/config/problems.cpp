#include "config/problems.hpp"

#include "base/error.hpp"
#include "config/utf8.hpp"

#include <algorithm>
#include <tuple>

namespace quadrille::input {

void Problems::add(Place at, std::string_view path, std::string_view sentence) {
    if (full()) {
        ++dropped_;
        return;
    }
    lines_.push_back({at, path.empty() ? std::string(sentence) : fmt::format("{}: {}", shortened(path, 120), sentence)});
}

std::string Problems::describe(Place at) const {
    if (at.source > 0) return fmt::format("override {} '{}'", at.source, overrides_[static_cast<std::size_t>(at.source - 1)]);
    return at.line > 0 ? fmt::format("{}:{}:{}", file_, at.line, at.column) : file_;
}

void Problems::throw_if_any() const {
    if (lines_.empty()) return;
    std::vector<const Line*> sorted;
    for (const Line& line : lines_) sorted.push_back(&line);
    std::stable_sort(sorted.begin(), sorted.end(), [](const Line* a, const Line* b) {
        return std::tie(a->at.source, a->at.line, a->at.column) < std::tie(b->at.source, b->at.line, b->at.column);
    });
    std::string message;
    for (const Line* line : sorted) {
        if (!message.empty()) message += '\n';
        message += fmt::format("{}: {}", describe(line->at), line->text);
    }
    if (dropped_ > 0) message += fmt::format("\n{}: and {} more problems", file_, dropped_);
    throw Error(Exit::refused, message);
}

}  // namespace quadrille::input

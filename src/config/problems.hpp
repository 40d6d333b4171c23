// What is wrong with an input: collected in one pass, thrown once. Owns the places (file or override) that problems refer to
// and the form of a line; knows nothing of keys.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace quadrille::input {

// Where something was written: in the file (source 0, line and column from 1; line 0: nowhere in particular) or in the
// override of that number (from 1).
struct Place {
    int source = 0, line = 0, column = 0;
};

class Problems {
  public:
    Problems(std::string file, std::vector<std::string> overrides) : file_(std::move(file)), overrides_(std::move(overrides)) {}

    // `path` (section.key, may be empty) and a sentence about it. The 200th and later ones are only counted.
    void add(Place at, std::string_view path, std::string_view sentence);
    bool empty() const { return lines_.empty(); }
    bool full() const { return lines_.size() >= most; }  // a further problem is only counted

    // Throws Error{refused} with all lines, those of the file first, in the order of their places; returns if there are none.
    void throw_if_any() const;

    // "file:3:5" or "override 2 'a.b=3'".
    std::string describe(Place at) const;

  private:
    static constexpr std::size_t most = 200;
    struct Line {
        Place at;
        std::string text;
    };
    std::string file_;
    std::vector<std::string> overrides_;
    std::vector<Line> lines_;
    long dropped_ = 0;
};

}  // namespace quadrille::input

// Where a call stands in the source, for error messages: std::source_location, for compilers that lack it (clang before 15) too.
#pragma once

namespace quadrille {

class Location {
  public:
    // As a default argument: the place of the call that left it out.
    static constexpr Location current(const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(),
                                      int line = __builtin_LINE()) {
        return Location(file, function, line);
    }
    constexpr const char* file_name() const { return file_; }
    constexpr const char* function_name() const { return function_; }
    constexpr int line() const { return line_; }

  private:
    constexpr Location(const char* file, const char* function, int line) : file_(file), function_(function), line_(line) {}
    const char* file_;
    const char* function_;
    int line_;
};

}  // namespace quadrille

// What the fuzzers share. Each is one file with an LLVMFuzzerTestOneInput, which gives the bytes that a file might hold to one reader.
//
// An Error is an answer. Everything else is a finding and ends the process: another exception, a signal, a sanitizer's report, too much memory or
// time, and a promise of the reader's header that does not hold. libFuzzer drives them in a build with QUADRILLE_SANITIZE=fuzzer-no-link,...; in all
// other builds replay.cpp gives each file of the corpus to them once.
#pragma once
#include "base/error.hpp"
#include "unit/temporary_directory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// libFuzzer's own changes to `data`, which has room for `most` bytes; returns the new size.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

namespace quadrille::fuzz {

// Ends the process unless `kept`: `promise` is a sentence that the reader's header says, `subject` what it was broken for.
inline void expect(bool kept, const char* promise, const std::string& subject = "") {
    if (kept) return;
    std::fprintf(stderr, "a promise is broken: %s\n%s\n", promise, subject.c_str());
    std::abort();
}

// Whether `read` takes its input. False: it has thrown an Error, which says what is wrong.
template <class Read>
bool takes(Read read) {
    try {
        read();
        return true;
    } catch (const Error& e) {
        expect(*e.what() != '\0', "an error is a sentence");
        return false;
    }
}

// Numbers and texts off the front of a fuzzer's bytes; zeros where none are left.
class Bytes {
  public:
    Bytes(const std::uint8_t* data, std::size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
    bool empty() const { return left_.empty(); }
    std::string_view rest() const { return left_; }

    std::string_view text(std::size_t count) {
        const std::string_view taken = left_.substr(0, std::min(count, left_.size()));
        left_.remove_prefix(taken.size());
        return taken;
    }
    template <class T>
    T number() {
        T value{};
        const std::string_view taken = text(sizeof value);
        if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
        return value;
    }
    std::uint8_t byte() { return number<std::uint8_t>(); }
    // From 0 to end - 1.
    std::size_t below(std::size_t end) { return number<std::uint16_t>() % end; }

  private:
    std::string_view left_;
};

inline std::string write(const std::filesystem::path& file, std::string_view bytes) {
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file.string();
}

inline std::string contents(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// A number that readers are known to stumble over, or a small one.
inline std::int64_t odd_number(std::minstd_rand& random) {
    constexpr std::int64_t odd[] = {-1, 127, 128, 255, 256, 32767, 65535, 65536, INT32_MAX, INT32_MIN,
                                    UINT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX / 8};
    const auto pick = random();
    return pick % 2 == 0 ? static_cast<std::int64_t>(pick / 2 % 20) : odd[pick / 2 % std::size(odd)];
}

}  // namespace quadrille::fuzz

// How failures end the process, and refused memory.
#include "base/error.hpp"
#include "base/out_of_memory.hpp"

#include <doctest.h>

#include <system_error>
#include <vector>

using namespace quadrille;

TEST_CASE("an exit code and a sentence for every kind of failure") {
    const auto ends = [](const std::exception& e, Exit exit, const char* part) {
        const Failure failure = failure_of(e);
        CHECK(failure.exit == exit);
        CHECK_MESSAGE(failure.message.find(part) != std::string::npos, failure.message);
    };
    ends(Error(Exit::io_failed, "the disk is full"), Exit::io_failed, "the disk is full");
    ends(OutOfMemory(12345), Exit::no_memory, "12345 bytes were asked for");
    ends(std::bad_alloc(), Exit::no_memory, "out of memory");
    ends(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)), Exit::no_memory, "a thread cannot be started");
    ends(std::system_error(std::make_error_code(std::errc::permission_denied)), Exit::rank_failed, "ermission denied");
    ends(std::logic_error("a mistake"), Exit::rank_failed, "a mistake");
}

#if !QUADRILLE_SANITIZED  // a sanitizer's allocator ends the process by itself
TEST_CASE("refused memory says how much was asked") {
    volatile std::size_t bytes = std::size_t{1} << 62;
    const auto asked = [&](auto allocate) {
        try {
            allocate();
            FAIL("it was had");
        } catch (const OutOfMemory& e) {
            CHECK(std::string(e.what()) == "out of memory: 4611686018427387904 bytes were asked for and cannot be had");
        }
    };
    asked([&] { ::operator delete(::operator new(bytes)); });
    asked([&] { std::vector<char> v(bytes); });
    CHECK(::operator new(bytes, std::nothrow) == nullptr);
}
#endif

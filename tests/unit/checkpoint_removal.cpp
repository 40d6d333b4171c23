// Folders that are removed behind what goes on: what cannot be removed is told once and ends nothing, memory that the thread is refused neither.
#include "checkpoint/removal.hpp"

#include "unit/temporary_directory.hpp"

#include <doctest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>

using namespace quadrille;

namespace fs = std::filesystem;

namespace {

const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<bool> refuses = false;  // memory, to other threads
std::atomic<int> refused = 0;

}  // namespace

void* operator new(std::size_t bytes) {
    if (refuses && std::this_thread::get_id() != main_thread) {
        ++refused;
        throw std::bad_alloc();
    }
    if (void* const memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// A folder with a file in a folder.
fs::path made(const fs::path& folder) {
    fs::create_directories(folder / "inside");
    std::ofstream(folder / "inside" / "file") << "some bytes";
    return folder;
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("what can be removed is, of what cannot a sentence is told once") {
    const TemporaryDirectory directory;
    const fs::path here(directory.path()), impossible = here / std::string(300, 'x');  // no file system has such a name
    Removal removal;
    removal.begin({made(here / "a"), impossible, made(here / "b")});
    const std::vector<std::string> failed = removal.wait();
    CHECK(fs::is_empty(here));
    REQUIRE(failed.size() == 1);
    CHECK(says(failed[0], impossible.string() + ": cannot be removed: "));
    CHECK(removal.wait().empty());
}

TEST_CASE("one that goes away waits for what it has begun") {
    const TemporaryDirectory directory;
    const fs::path here(directory.path());
    {
        Removal removal;
        removal.begin({made(here / "a")});
    }
    CHECK(fs::is_empty(here));
}

TEST_CASE("memory that the thread is refused leaves the folder, with a sentence, and ends nothing") {
    const TemporaryDirectory directory;
    const fs::path here(directory.path());
    Removal removal;
    const fs::path folder = made(here / "a");
    refuses = true;
    removal.begin({folder});
    const std::vector<std::string> failed = removal.wait();
    refuses = false;
    REQUIRE(refused > 0);
    REQUIRE(failed.size() == 1);
    CHECK(says(failed[0], folder.string() + ": cannot be removed: "));
    removal.begin({folder});
    CHECK(removal.wait().empty());
    CHECK(fs::is_empty(here));
}

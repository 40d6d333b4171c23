// The folders of checkpoints: by which names one is found, what they take of the disk, and what is synced so that a power cut leaves them.
#include "checkpoint/steps.hpp"
#include "checkpoint_fixture.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

using namespace quadrille;
using namespace quadrille::test;

namespace fs = std::filesystem;

namespace {

std::set<fs::path> synced;  // files and folders, by this process
std::vector<std::ptrdiff_t> folders_then;  // how many stood beside that of a file, and it, when space was taken for one

}  // namespace

// Before the C library's own.
extern "C" int fsync(int descriptor) {
    std::error_code unknown;
    synced.insert(fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), unknown));
    return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
extern "C" int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
    const fs::path file = fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor));
    folders_then.push_back(std::distance(fs::directory_iterator(file.parent_path().parent_path()), fs::directory_iterator()));
    return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, bytes));
}

namespace {

void save_into(const fs::path& directory) {
    StateOnGrid state(on_grid(tiny(false), world().size(), 1, 1, 1), world().rank(), "");
    state.fill();
    SaveSettings settings;
    settings.directory = directory;
    Saver saver(world(), settings, state.program(), state.at(), state.arena());
    REQUIRE(saver.save(point_at(5)));
}

}  // namespace

TEST_CASE("a checkpoint is found by its path whatever its folder is called, and by a link to it") {
    const SharedDirectory directory;
    save_into(directory.path());
    const fs::path former = directory.path() / "former-step-00000005", link = directory.path() / "latest";
    if (world().rank() == 0) fs::create_directory_symlink("step-00000005", link);
    world().barrier();
    const Found by_link = open_checkpoint(world(), link);
    REQUIRE(by_link.checkpoint.has_value());
    CHECK(step_of(by_link.checkpoint->folder) == 5);  // itself, for the link may lead elsewhere later
    world().barrier();
    if (world().rank() == 0) fs::rename(directory.path() / "step-00000005", former);
    world().barrier();
    const Found by_name = open_checkpoint(world(), former);
    REQUIRE(by_name.checkpoint.has_value());
    CHECK(by_name.checkpoint->point.step == 5);
    CHECK(!find_newest(world(), directory.path()).checkpoint.has_value());  // auto takes none that was put aside
}

TEST_CASE("a checkpoint takes no more of the disk than it has bytes") {
    const SharedDirectory directory;
    save_into(directory.path());
    struct stat status {};
    REQUIRE(::stat((directory.path() / "step-00000005/checkpoint.h5").c_str(), &status) == 0);
    CHECK(status.st_blocks * 512 < status.st_size + (16 << 10));
}

TEST_CASE("what an older one took of the disk is given back before a new one takes any, and how long that took is told") {
    const SharedDirectory directory;
    StateOnGrid state(on_grid(tiny(false), world().size(), 1, 1, 1), world().rank(), "");
    SaveSettings settings;
    settings.directory = directory.path();
    settings.keep = 1;
    Saver saver(world(), settings, state.program(), state.at(), state.arena());
    for (const std::int64_t step : {1, 2, 3}) {
        folders_then.clear();
        REQUIRE(saver.save(point_at(step)));
        for (const std::ptrdiff_t folders : folders_then) CHECK(folders <= 2);  // keep + 1
        // Far longer to remove than a file.
        for (int i = 0; step == 1 && world().rank() == 0 && i < 20000; ++i) std::ofstream(directory.path() / "step-00000001" / std::to_string(i));
    }
    if (world().rank() == 0) CHECK(!folders_then.empty());
    const std::vector<Saved> saved = saver.saved();
    REQUIRE(saved.size() == 3);
    CHECK(saved[1].removal_seconds == 0);
    CHECK((saved[2].removal_seconds > 0) == (world().rank() == 0));
}

TEST_CASE("file, folder, its directory and the parents that were made are synced") {
    const SharedDirectory directory;
    synced.clear();
    const fs::path saves = directory.path() / "run" / "checkpoints";
    save_into(saves);
    if (world().rank() != 0) return;
    const fs::path root = fs::canonical(directory.path());
    const auto is_partial = [](const fs::path& path) { return path.string().find("step-00000005.partial-") != std::string::npos; };
    for (const fs::path& folder : {root, root / "run", root / "run/checkpoints"}) CHECK(synced.contains(folder));
    CHECK(std::count_if(synced.begin(), synced.end(), is_partial) == 2);  // the file and its folder, under the name they had then
}

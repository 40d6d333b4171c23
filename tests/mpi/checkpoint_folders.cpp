// The folders of checkpoints: by which names one is found, what they take of the disk, and what is synced so that a power cut leaves them.
#include "checkpoint/steps.hpp"
#include "checkpoint_fixture.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>

using namespace quadrille;
using namespace quadrille::test;

namespace fs = std::filesystem;

namespace {

std::set<fs::path> synced;  // files and folders, by this process

}  // namespace

// Before the C library's own.
extern "C" int fsync(int descriptor) {
    std::error_code unknown;
    synced.insert(fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), unknown));
    return static_cast<int>(::syscall(SYS_fsync, descriptor));
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

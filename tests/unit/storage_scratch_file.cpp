// Where the file comes from: bad directories, two runs in one, a killed run, a full disk.
#include <doctest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <csignal>
#include <fstream>

#include "unit/storage_fixture.hpp"

namespace quadrille {
namespace {

using namespace storage_test;

NvmeOptions options(const std::filesystem::path& directory, std::int64_t bytes = 1 << 20) {
    NvmeOptions o;
    o.directory = directory;
    o.bytes = bytes;
    o.block_size = 64 << 10;
    o.queue_depth = 4;
    return o;
}

std::int64_t entries(const std::filesystem::path& directory) { return std::distance(std::filesystem::directory_iterator(directory), {}); }

// A file system that has no files without a name.
const Refusal no_unnamed_files{SYS_openat, EOPNOTSUPP, 2, O_TMPFILE, O_TMPFILE};
const Refusal no_reservation{SYS_fallocate, EOPNOTSUPP};

TEST_CASE("a path that cannot be used is an error that names it and the bytes") {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "file", missing = directory.path() / "missing";
    std::ofstream(file) << "a user's";
    const auto said = [](const std::filesystem::path& path) { return in_child([&] { return round_trip(options(path)); }); };
    const auto refusal = [](const std::filesystem::path& path, const char* why) {
        return fmt::format("Error 5: offload.nvme_path: {}: cannot make a file of 1048576 bytes in this directory: {}", path.string(), why);
    };
    CHECK(said(missing) == refusal(missing, "No such file or directory"));
    CHECK(said(file) == refusal(file, "Not a directory"));
    const auto locked = directory.path() / "locked";
    std::filesystem::create_directory(locked);
    std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
    std::filesystem::permissions(locked, std::filesystem::perms::others_read | std::filesystem::perms::others_exec);
    const std::string denied = in_child([&]() -> std::string {
        if (getuid() == 0 && setuid(65534) != 0) return skipped;
        return round_trip(options(locked));
    });
    if (denied == skipped) skip("this root may not become nobody");
    else CHECK(says(denied, "1048576 bytes in this directory: Permission denied"));
    CHECK(entries(directory.path()) == 2);
}

TEST_CASE("a read-only file system is an error") {
    const TemporaryDirectory directory;
    const std::string said = in_child([&]() -> std::string {
        if (!mount_small_disk(directory.path(), 1 << 20)) return skipped;
        if (mount(nullptr, directory.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return skipped;
        return round_trip(options(directory.path()));
    });
    if (said == skipped) return skip("only root may mount a tmpfs");
    CHECK(says(said, "Error 5"));
    CHECK(says(said, "Read-only file system"));
}

TEST_CASE("a disk that is too small is found out before any transfer") {
    const TemporaryDirectory directory;
    const std::string said = in_child([&]() -> std::string {
        if (!mount_small_disk(directory.path(), 1 << 20)) return skipped;
        return round_trip(options(directory.path(), 2 << 20));
    });
    if (said == skipped) return skip("only root may mount a tmpfs");
    CHECK(says(said, fmt::format("Error 5: offload.nvme_path: {}/#", directory.path().string())));
    CHECK(says(said, ": cannot reserve its 2097152 bytes: No space left on device"));
}

TEST_CASE("where no space can be reserved a disk that fills up ends the run, in mid transfer, by name") {
    const TemporaryDirectory directory;
    for (const Carrier carrier : {Carrier::io_uring, Carrier::threads}) {
        const std::string said = in_child([&]() -> std::string {
            if (!mount_small_disk(directory.path(), 1 << 20) || !refuse({no_reservation})) return skipped;
            NvmeOptions o = options(directory.path(), 4 << 20);
            o.carrier = carrier;
            return round_trip(o, 3 << 20);
        });
        if (said == skipped) return skip("only root may mount a tmpfs");
        CHECK(says(said, fmt::format("Error 5: offload.nvme_path: {}/#", directory.path().string())));
        CHECK(says(said, "writing 65536 bytes at byte "));
        CHECK(says(said, "of 4194304 failed: No space left on device"));
    }
}

TEST_CASE("a limit on the size of files is an error and not the end of the process") {
    const TemporaryDirectory directory;
    const std::string said = in_child([&] {
        const rlimit small{64 << 10, 64 << 10};
        setrlimit(RLIMIT_FSIZE, &small);
        return round_trip(options(directory.path()));
    });
    CHECK(says(said, "Error 5"));
    CHECK(says(said, "cannot reserve its 1048576 bytes (ulimit -f allows 65536): File too large"));
}

TEST_CASE("a file system that reserves no space is told of and used") {
    const TemporaryDirectory directory;
    const std::string said = in_child([&]() -> std::string { return refuse({no_reservation}) ? round_trip(options(directory.path())) : skipped; });
    if (said == skipped) return skip("no seccomp filters here");
    CHECK(says(said, "whole"));
    CHECK(says(said, "its file system reserves no space, so a disk that fills up ends the run (Operation not supported)"));
}

TEST_CASE("the space is reserved at once and given back at the end") {
    const TemporaryDirectory directory;
    const NvmeFile file(options(directory.path(), 8 << 20));
    struct stat status {};
    REQUIRE(fstat(file.descriptor(), &status) == 0);
    CHECK(status.st_size == 8 << 20);
    CHECK(status.st_blocks * 512 >= 8 << 20);
    CHECK(status.st_nlink == 0);
    CHECK(says(file.name(), fmt::format("{}/#{}", directory.path().string(), status.st_ino)));
}

TEST_CASE("files have no names: two in one directory do not meet, and it may be removed") {
    const TemporaryDirectory directory;
    const auto place = directory.path() / "place";
    std::filesystem::create_directory(place);
    NvmeFile one(options(place)), two(options(place));
    CHECK(entries(place) == 0);
    const Bytes first(1, 1 << 20), second(2, 1 << 20), got(3, 1 << 20);
    const TransferTicket a = one.write(0, first.data(), 1 << 20), b = two.write(0, second.data(), 1 << 20);
    one.wait(a);
    two.wait(b);
    REQUIRE(std::filesystem::remove(place));
    one.wait(one.read(0, got.data(), 1 << 20));
    CHECK(got.equals(first));
    two.wait(two.read(0, got.data(), 1 << 20));
    CHECK(got.equals(second));
}

TEST_CASE("a killed run leaves nothing, with and without unnamed files") {
    const TemporaryDirectory directory;
    for (const bool unnamed : {true, false}) {
        const std::string said = in_child([&]() -> std::string {
            if (!unnamed && !refuse({no_unnamed_files})) return skipped;
            NvmeFile file(options(directory.path()));
            const Bytes memory(1, 1 << 20);
            file.write(0, memory.data(), 1 << 20);
            raise(SIGKILL);
            return "alive";
        });
        if (said == skipped) return skip("no seccomp filters here");
        CHECK(said == fmt::format("killed by signal {}", SIGKILL));
        CHECK(entries(directory.path()) == 0);
    }
}

TEST_CASE("without unnamed files, a name that is taken is neither used nor in the way") {
    const TemporaryDirectory directory;
    const std::string said = in_child([&]() -> std::string {
        char host[256] = "";
        gethostname(host, sizeof host - 1);
        for (const int n : {0, 1})
            std::ofstream(directory.path() / fmt::format("quadrille-{}-{}-{}.offload", host, getpid(), n)) << "left by another";
        return refuse({no_unnamed_files}) ? round_trip(options(directory.path())) : skipped;
    });
    if (said == skipped) return skip("no seccomp filters here");
    CHECK(says(said, "whole"));
    CHECK(entries(directory.path()) == 2);
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
        std::string text;
        std::getline(std::ifstream(entry.path()), text);
        CHECK(text == "left by another");
    }
}

}  // namespace
}  // namespace quadrille

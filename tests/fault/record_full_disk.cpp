// A full disk: the record's write fails with the reason and harms nothing. Mounts a tiny tmpfs in a mount namespace of its own;
// where that is not allowed the test is skipped.
#include "base/error.hpp"
#include "record/record_reader.hpp"
#include "record/record_writer.hpp"
#include "unit/record_sample.hpp"

#include <doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <cstdio>

using namespace quadrille;

namespace {

const TemporaryDirectory* disk = nullptr;

bool mount_small_disk(const std::filesystem::path& at) {
    if (::unshare(CLONE_NEWNS) != 0) return false;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    return ::mount("tmpfs", at.c_str(), "tmpfs", 0, "size=256k") == 0;
}

}  // namespace

TEST_CASE("a full disk leaves the former record whole and no temporary file") {
    RecordWriter writer(disk->path());
    writer.write(sample_record(1));
    std::string message;
    try {
        writer.write(sample_record(5000));
    } catch (const Error& error) {
        CHECK(error.exit() == Exit::io_failed);
        message = error.what();
    }
    CHECK(message.find("run.h5: cannot write: No space left on device") != std::string::npos);
    CHECK(std::distance(std::filesystem::directory_iterator(disk->path()), {}) == 1);
    CHECK(read_record(writer.path()).steps.size() == 1);
    writer.write(sample_record(2));
    CHECK(read_record(writer.path()).steps.size() == 2);
}

int main(int argc, char** argv) {
    const TemporaryDirectory directory;
    if (!mount_small_disk(directory.path())) {
        std::puts("skipped: only root may mount a tmpfs");
        return 77;
    }
    disk = &directory;
    const int status = doctest::Context(argc, argv).run();
    ::umount(directory.path().c_str());
    return status;
}

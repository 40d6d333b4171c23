// Systems that refuse something: direct access, io_uring, locked memory. The file works all the same and says what is missing and why.
#include <doctest.h>

#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>

#include <algorithm>

#include "unit/storage_fixture.hpp"

namespace quadrille {
namespace {

using namespace storage_test;

NvmeOptions options(const TemporaryDirectory& directory) {
    NvmeOptions o;
    o.directory = directory.path();
    o.bytes = 1 << 20;
    o.block_size = 16 << 10;
    o.queue_depth = 16;
    return o;
}

// What a round trip says in a process in which calls are refused.
std::string under(const std::vector<Refusal>& refusals, const NvmeOptions& o) {
    return in_child([&]() -> std::string { return refuse(refusals) ? round_trip(o) : skipped; });
}

std::int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

// Whether io_uring works where nobody refuses it; a machine may be so set up that it does not.
bool has_uring() {
    const TemporaryDirectory directory;
    return says(round_trip(options(directory)), "io_uring, ");
}

TEST_CASE("io_uring refused: threads, and one sentence with the true error") {
    if (!has_uring()) return skip("io_uring is refused here anyway");
    const TemporaryDirectory directory;
    for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter})
        for (const auto& [error, words] : {std::pair{EPERM, "Operation not permitted"},
                                          {ENOMEM, "Cannot allocate memory"},
                                          {ENOSYS, "Function not implemented"}}) {
            const std::string said = under({{call, error}}, options(directory));
            if (said == skipped) return skip("no seccomp filters here");
            CAPTURE(said);
            CHECK(says(said, "whole, threads"));
            CHECK(says(said, fmt::format("io_uring is refused: {}; up to 8 threads", words)));
            CHECK(lines(said) == 1);
        }
}

TEST_CASE("registered memory refused: io_uring without it, and one sentence with the limit") {
    if (!has_uring()) return skip("io_uring is refused here");
    const TemporaryDirectory directory;
    constexpr unsigned register_buffers = 0;
    const std::string said = under({{SYS_io_uring_register, ENOMEM, 1, ~0u, register_buffers}}, options(directory));
    if (said == skipped) return skip("no seccomp filters here");
    CHECK(says(said, "whole, io_uring"));
    CHECK(says(said, "262144 bytes of memory cannot be registered with io_uring: Cannot allocate memory (locked memory is "));
    CHECK(lines(said) == 1);
}

TEST_CASE("64 KiB of lockable memory serve eight files of a user") {
    const TemporaryDirectory directory;
    std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
    const std::string said = in_child([&]() -> std::string {
        const rlimit small{64 << 10, 64 << 10};
        if (setrlimit(RLIMIT_MEMLOCK, &small) != 0) return skipped;
        if (getuid() == 0 && (setgroups(0, nullptr) != 0 || setuid(65534) != 0)) return skipped;  // root may lock any amount
        const Bytes arena(1, 1 << 20), got(2, 1 << 20);
        NvmeOptions o = options(directory);
        o.memory = {arena.span()};
        std::vector<std::unique_ptr<NvmeFile>> files;
        for (int rank = 0; rank < 8; ++rank) files.push_back(std::make_unique<NvmeFile>(o));
        for (auto& file : files) file->wait(file->write(0, arena.data(), 1 << 20));
        std::string result;
        for (auto& file : files) {
            file->wait(file->read(0, got.data(), 1 << 20));
            result += got.equals(arena) ? "whole " : "damaged ";
            if (file->notes() != files[0]->notes()) result += "another note ";
        }
        for (const std::string& note : files[0]->notes()) result += "\n" + note;
        return result;
    });
    if (said == skipped) return skip("this root may not become nobody");
    CAPTURE(said);
    CHECK(says(said, "whole whole whole whole whole whole whole whole \n"));
    if (has_uring())
        CHECK(says(said, "1310720 bytes of memory cannot be registered with io_uring: Cannot allocate memory "
                         "(locked memory is limited to 65536 bytes)"));
    CHECK(lines(said) == 1);
}

TEST_CASE("direct access refused, by the flag or by the first write: the page cache, and one sentence") {
    const TemporaryDirectory directory;
    for (const Carrier carrier : {Carrier::io_uring, Carrier::threads}) {
        NvmeOptions o = options(directory);
        o.carrier = carrier;
        const std::string flag = under({{SYS_fcntl, EINVAL, 2, O_DIRECT, O_DIRECT}}, o);
        if (flag == skipped) return skip("no seccomp filters here");
        CHECK(says(flag, "whole"));
        CHECK(says(flag, ", buffered\n"));
        CHECK(says(flag, fmt::format("offload.nvme_path: {}: O_DIRECT is refused: Invalid argument; ", directory.path().string())));
    }
    if (!has_uring()) return;
    const std::string write = under({{SYS_pwrite64, EINVAL}}, options(directory));  // io_uring's own writes are no such calls
    CHECK(says(write, "whole, io_uring, buffered\n"));
    CHECK(says(write, "O_DIRECT is refused: Invalid argument; "));
    CHECK(lines(write) == 1);
}

TEST_CASE("a first write that fails for another reason is an error") {
    const TemporaryDirectory directory;
    const std::string said = under({{SYS_pwrite64, EIO}}, options(directory));
    if (said == skipped) return skip("no seccomp filters here");
    CHECK(says(said, "Error 5"));
    CHECK(says(said, ": cannot write its first 4096 of 1048576 bytes: Input/output error"));
}

TEST_CASE("a disk that fails in mid run is an error with file, bytes and reason, on both carriers") {
    const TemporaryDirectory directory;
    NvmeOptions o = options(directory);
    o.carrier = Carrier::threads;
    const std::string said = under({{SYS_pread64, EIO}}, o);
    if (said == skipped) return skip("no seccomp filters here");
    CHECK(says(said, "Error 5: offload.nvme_path: "));
    CHECK(says(said, "reading "));
    CHECK(says(said, "of 1048576 failed: Input/output error"));
}

}  // namespace
}  // namespace quadrille

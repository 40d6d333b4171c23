#include "storage/scratch_file.hpp"

#include "base/error.hpp"
#include "base/host_name.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace quadrille {
namespace {

constexpr int most_names = 1000;

// The call's result, again while a signal interrupts it.
template <class Call>
int uninterrupted(Call call) {
    int result = 0;
    do result = call();
    while (result < 0 && errno == EINTR);
    return result;
}

}  // namespace

ScratchFile::ScratchFile(const std::string& directory, std::int64_t bytes, Access wanted, std::vector<std::string>& notes)
    : bytes_(aligned_up(bytes, file_alignment)), name_(directory) {
    require(bytes >= 0, "storage: a file has no negative size");
    try {
        open_unnamed(directory);
        struct stat status {};
        if (fstat(descriptor_, &status) != 0) fail(fmt::format("look at its new file of {} bytes", bytes_), errno);
        name_ = fmt::format("{}/#{}", directory, status.st_ino);
        if (bytes_ > 0) reserve(directory, notes);
        if (bytes_ > 0 && wanted == Access::direct) make_direct(directory, notes);
    } catch (...) {
        if (descriptor_ >= 0) close(descriptor_);
        throw;
    }
}

ScratchFile::~ScratchFile() { close(descriptor_); }

void ScratchFile::fail(const std::string& doing, int error) const {
    throw Error(Exit::io_failed, fmt::format("offload.nvme_path: {}: cannot {}: {}", name_, doing, std::strerror(error)));
}

void ScratchFile::fail_to_make() const { fail(fmt::format("make a file of {} bytes in this directory", bytes_), errno); }

// Best is a file that never has a name. Where the file system has none such (it says so in several ways), one that loses its name at once.
void ScratchFile::open_unnamed(const std::string& directory) {
    descriptor_ = uninterrupted([&] { return open(directory.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600); });
    if (descriptor_ >= 0) return;
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOSYS) return open_and_unlink(directory);
    fail_to_make();
}

// What a killed run may have left under such a name is neither used nor in the way.
void ScratchFile::open_and_unlink(const std::string& directory) {
    const std::string host = host_name();
    for (int n = 0; n < most_names; ++n) {
        const std::string path = fmt::format("{}/quadrille-{}-{}-{}.offload", directory, host, getpid(), n);
        descriptor_ = uninterrupted([&] { return open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600); });
        if (descriptor_ >= 0) {
            if (unlink(path.c_str()) != 0) fail(fmt::format("remove the name of {}, a file of {} bytes", path, bytes_), errno);
            return;
        }
        if (errno != EEXIST) break;
    }
    fail_to_make();
}

void ScratchFile::reserve(const std::string& directory, std::vector<std::string>& notes) {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && static_cast<std::uint64_t>(bytes_) > limit.rlim_cur)  // the system would end the process instead
        fail(fmt::format("reserve its {} bytes (ulimit -f allows {})", bytes_, limit.rlim_cur), EFBIG);
    if (uninterrupted([&] { return fallocate(descriptor_, 0, 0, bytes_); }) == 0) return;
    if (errno != EOPNOTSUPP && errno != ENOSYS) fail(fmt::format("reserve its {} bytes", bytes_), errno);
    notes.push_back(fmt::format("offload.nvme_path: {}: its file system reserves no space, so a disk that fills up ends the run ({})", directory,
                                std::strerror(errno)));
    if (uninterrupted([&] { return ftruncate(descriptor_, bytes_); }) != 0) fail(fmt::format("make it {} bytes long", bytes_), errno);
}

// File systems say in three places whether and how they read and write directly: in the flag, in the first transfer, and nowhere.
void ScratchFile::make_direct(const std::string& directory, std::vector<std::string>& notes) {
    const int flags = fcntl(descriptor_, F_GETFL);
    int problem = fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0 ? 0 : errno;
    if (problem == 0) {
        const AlignedMemory memory = aligned_memory(2 * file_alignment, "for offload: a first block on its way to the nvme tier");
        for (const std::int64_t alignment : {std::int64_t{64}, std::int64_t{512}, file_alignment}) {
            problem = write_trial(memory.get() + alignment);
            if (problem == EINVAL) continue;
            if (problem != 0) fail(fmt::format("write its first {} of {} bytes", file_alignment, bytes_), problem);
            access_ = Access::direct;
            memory_alignment_ = alignment;
            return;
        }
        fcntl(descriptor_, F_SETFL, flags);
    }
    notes.push_back(fmt::format("offload.nvme_path: {}: O_DIRECT is refused: {}; the nvme tier's reads and writes go through the page cache",
                                directory, std::strerror(problem)));
}

// 0 or the errno. Writes, since a read of space that is only reserved asks the device for nothing.
int ScratchFile::write_trial(const std::byte* memory) const {
    const auto bytes = static_cast<std::size_t>(file_alignment);
    const int written = uninterrupted([&] { return static_cast<int>(pwrite(descriptor_, memory, bytes, 0)); });
    if (written < 0) return errno;
    return written == file_alignment ? 0 : EINVAL;
}

}  // namespace quadrille

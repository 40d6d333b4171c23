#include "data/mapped_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <xxhash.h>

namespace quadrille {

namespace {
constexpr std::int64_t largest_copy = 64 << 10;
constexpr std::int64_t largest_end = 32 << 10;  // of a file's mark

std::string system_problem(const std::string& path) { return fmt::format("{}: {}", path, std::strerror(errno)); }

struct Descriptor {
    int value;
    ~Descriptor() {
        if (value >= 0) close(value);
    }
};

// A corpus may have more shards than a process may have open files: half of those it may have are left to others.
bool may_stay_open(int descriptor) {
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(descriptor) < limit.rlim_cur / 2;
}
}  // namespace

MappedFile::MappedFile(std::string path, std::string& problem) : path_(std::move(path)) {
    // Not blocking, so that a named pipe is refused below instead of waited for.
    Descriptor file{open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat status = {};
    if (file.value < 0 || fstat(file.value, &status) != 0) {
        problem = system_problem(path_);
        return;
    }
    if (!S_ISREG(status.st_mode)) {
        problem = fmt::format("{}: {}, but a regular file is needed", path_,
                              S_ISDIR(status.st_mode) ? "is a directory" : "is not a regular file");
        return;
    }
    size_ = status.st_size;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    const bool whole = size_ <= largest_copy ? copy(file.value, problem) : map(file.value, problem);
    if (!whole) size_ = 0;
    if (mapped_ && may_stay_open(file.value)) descriptor_ = std::exchange(file.value, -1);
}

bool MappedFile::copy(int descriptor, std::string& problem) {
    copy_.resize(static_cast<std::size_t>(size_));
    std::size_t have = 0;
    while (have < copy_.size()) {
        const ssize_t got = ::read(descriptor, copy_.data() + have, copy_.size() - have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            problem = got < 0 ? system_problem(path_)
                              : fmt::format("{}: ended after {} of {} bytes while it was read", path_, have, size_);
            return false;
        }
        have += static_cast<std::size_t>(got);
    }
    begin_ = copy_.data();
    return true;
}

bool MappedFile::map(int descriptor, std::string& problem) {
    void* at = mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED) {
        problem = fmt::format("{}: cannot map {} bytes: {}", path_, size_, std::strerror(errno));
        return false;
    }
    begin_ = static_cast<const std::byte*>(at);
    mapped_ = true;
    return true;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), size_(std::exchange(other.size_, 0)), begin_(std::exchange(other.begin_, nullptr)),
      mapped_(std::exchange(other.mapped_, false)), descriptor_(std::exchange(other.descriptor_, -1)), lost_(other.lost()),
      device_(other.device_), inode_(other.inode_), copy_(std::move(other.copy_)) {}

MappedFile::~MappedFile() {
    if (mapped_) munmap(const_cast<std::byte*>(begin_), static_cast<std::size_t>(size_));
    if (descriptor_ >= 0) close(descriptor_);
}

// The file's own, whatever it is called now; without a descriptor, only while it still has its name.
bool MappedFile::size_now(std::int64_t& size) const {
    struct stat status = {};
    if (!mapped_ || (descriptor_ >= 0 ? fstat(descriptor_, &status) : stat(path_.c_str(), &status)) != 0) return false;
    size = status.st_size;
    return status.st_dev == device_ && status.st_ino == inode_;
}

std::string MappedFile::problem_before(std::int64_t end) const {
    std::int64_t now = 0;
    if (size_now(now) && now < std::min(end, size_))
        return fmt::format("{}: has been cut to {} bytes from {} since it was opened", path_, now, size_);
    if (!lost()) return "";
    return fmt::format("{}: parts of its {} bytes can no longer be read: it has been cut since it was opened, or the disk fails", path_, size_);
}

FileMark MappedFile::mark() const {
    const PageGuard held = guard();
    const auto n = static_cast<std::size_t>(std::min(size_, largest_end));
    const std::uint64_t first = XXH3_64bits(begin_, n);
    return {path_, size_, XXH3_64bits_withSeed(begin_ + size_ - static_cast<std::int64_t>(n), n, first)};
}

}  // namespace quadrille

#include "data/mapped_file.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace quadrille {

namespace {
constexpr std::int64_t largest_copy = 64 << 10;

std::string system_problem(const std::string& path) { return fmt::format("{}: {}", path, std::strerror(errno)); }

// Closes the descriptor: a mapping outlives it, and a corpus may have more shards than a process may have open files.
struct Descriptor {
    int value;
    ~Descriptor() {
        if (value >= 0) close(value);
    }
};
}  // namespace

MappedFile::MappedFile(std::string path, std::string& problem) : path_(std::move(path)) {
    // Not blocking, so that a named pipe is refused below instead of waited for.
    const Descriptor file{open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
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
      mapped_(std::exchange(other.mapped_, false)), device_(other.device_), inode_(other.inode_), copy_(std::move(other.copy_)) {}

MappedFile::~MappedFile() {
    if (mapped_) munmap(const_cast<std::byte*>(begin_), static_cast<std::size_t>(size_));
}

bool MappedFile::shrunk(std::int64_t& now) const {
    struct stat status = {};
    if (!mapped_ || stat(path_.c_str(), &status) != 0) return false;
    if (status.st_dev != device_ || status.st_ino != inode_) return false;
    now = status.st_size;
    return now < size_;
}

}  // namespace quadrille

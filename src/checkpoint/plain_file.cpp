#include "checkpoint/plain_file.hpp"

#include "record/replace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quadrille {
namespace {

constexpr std::size_t most_of_a_call = std::size_t{1} << 30;  // bytes
constexpr std::int64_t part_to_sync = std::int64_t{1} << 30;  // bytes between two beats

// Told once per open file: whoever is told must say so.
bool failed_to_write(int reason) { return reason == EIO || reason == ENOSPC || reason == EDQUOT || reason == EFBIG; }

int flags_of(PlainFile::Open how) {
    switch (how) {
        case PlainFile::Open::read: return O_RDONLY | O_NONBLOCK;  // a pipe would else be waited for
        case PlainFile::Open::write: return O_RDWR;
        case PlainFile::Open::make: break;
    }
    return O_RDWR | O_CREAT | O_EXCL;
}

}  // namespace

PlainFile::PlainFile(std::filesystem::path path, Open how)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), flags_of(how) | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0 && how != Open::make && (errno == ENOENT || errno == ENOTDIR))
        throw Damaged(Exit::io_failed, fmt::format("{}: is missing", path_.string()));
    if (descriptor_ < 0) fail(how == Open::make ? "make it" : "open", errno);
    try {
        size();  // of no file there is none
    } catch (const Error&) {
        ::close(descriptor_);
        throw;
    }
}

PlainFile::~PlainFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

std::int64_t PlainFile::size() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail("open", errno);
    if (!S_ISREG(status.st_mode)) throw Damaged(Exit::io_failed, fmt::format("{}: is no file", path_.string()));
    return status.st_size;
}

void PlainFile::read(std::int64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
        const ssize_t count = ::pread(descriptor_, into.data(), std::min(into.size(), most_of_a_call), offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("read", errno);
        if (count == 0) throw Damaged(Exit::io_failed, fmt::format("{}: ends at byte {}, {} bytes too early", path_.string(), offset, into.size()));
        into = into.subspan(static_cast<std::size_t>(count));
        offset += count;
    }
}

void PlainFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), most_of_a_call), offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("write", errno);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        offset += count;
    }
}

void PlainFile::reserve(std::int64_t bytes) {
#ifdef __linux__
    while (::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0) {
        if (errno == EINTR) continue;
        if (failed_to_write(errno)) fail(fmt::format("take {} bytes", bytes).c_str(), errno);
        return;  // a file system that cannot: it will say when it is full
    }
#else
    static_cast<void>(bytes);
#endif
}

void PlainFile::give_back() {
    if (::ftruncate(descriptor_, size()) != 0) fail("give back what it does not need", errno);
}

void PlainFile::try_size(std::int64_t bytes) {
    if (::ftruncate(descriptor_, bytes) != 0) fail(fmt::format("have {} bytes", bytes).c_str(), errno);
    if (::ftruncate(descriptor_, 0) != 0) fail("empty it", errno);
}

void PlainFile::begin_sync() {
#ifdef __linux__
    // Of all of it; a failure is told when it is synced.
    static_cast<void>(::sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE));
#endif
}

void PlainFile::sync(const std::function<void()>& beat) {
#ifdef __linux__
    constexpr unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const std::int64_t bytes = size();
    for (std::int64_t at = 0; at < bytes; at += part_to_sync) {
        if (::sync_file_range(descriptor_, at, part_to_sync, wait) != 0 && failed_to_write(errno)) fail("sync", errno);
        beat();
    }
#endif
    quadrille::sync(descriptor_, path_);
    beat();
}

void PlainFile::fail(const char* doing, int reason) const {
    throw Error(Exit::io_failed, fmt::format("{}: cannot {}: {}", path_.string(), doing, std::strerror(reason)));
}

}  // namespace quadrille

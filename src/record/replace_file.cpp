#include "record/replace_file.hpp"

#include "base/error.hpp"
#include "base/host_name.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace quadrille {
namespace {

// A file descriptor and, where one is named, the temporary file that goes with it unless it is kept.
class OpenFile {
  public:
    OpenFile(int fd, std::string temporary) : fd_(fd), temporary_(std::move(temporary)) {}
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() {
        if (fd_ >= 0) ::close(fd_);
        if (!temporary_.empty()) ::unlink(temporary_.c_str());
    }
    int fd() const { return fd_; }
    const std::string& temporary() const { return temporary_; }
    int close() {
        const int status = ::close(fd_);
        fd_ = -1;
        return status;
    }
    void keep() { temporary_.clear(); }

  private:
    int fd_;
    std::string temporary_;
};

[[noreturn]] void fail(const std::filesystem::path& file, const char* doing, int reason) {
    throw Error(Exit::io_failed, fmt::format("{}: cannot {}: {}", file.string(), doing, std::strerror(reason)));
}

// Made by open and not by mkstemp, so that the user's umask decides who may read it.
OpenFile open_beside(const std::filesystem::path& file) {
    const std::string host = host_name();
    for (int n = 0; n < 1000; ++n) {
        std::string name = fmt::format("{}{}{}-{}-{}", file.string(), partial_mark, host, ::getpid(), n);
        const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) return {fd, std::move(name)};
        if (errno != EEXIST && errno != EINTR) fail(file, "write beside it", errno);
    }
    fail(file, "write beside it", EEXIST);
}

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& file) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1 << 30));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(file, "write", errno);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

OpenFile open_folder(const std::filesystem::path& folder) { return {::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), ""}; }

}  // namespace

// Some file systems cannot sync and say so; the write itself was checked.
void sync(int descriptor, const std::filesystem::path& name) {
    while (::fsync(descriptor) != 0) {
        if (errno == EINTR) continue;
        if (errno == EINVAL || errno == ENOTSUP || errno == EROFS) return;
        fail(name, "sync", errno);
    }
}

void sync_folder(const std::filesystem::path& folder) {
    const OpenFile entry = open_folder(folder);
    if (entry.fd() < 0) fail(folder, "sync", errno);
    sync(entry.fd(), folder);
}

void replace_file(const std::filesystem::path& file, std::span<const std::byte> bytes) {
    OpenFile beside = open_beside(file);
    write_all(beside.fd(), bytes, file);
    sync(beside.fd(), file);
    if (beside.close() != 0) fail(file, "close", errno);
    if (::rename(beside.temporary().c_str(), file.c_str()) != 0) fail(file, "replace", errno);
    beside.keep();
    const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
    const OpenFile entry = open_folder(directory);  // one that may not be read is written to all the same
    if (entry.fd() >= 0) sync(entry.fd(), directory);
}

std::vector<std::byte> read_file(const std::filesystem::path& file) {
    // Not blocking, so that a named pipe is refused instead of waited for.
    const OpenFile source(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), "");
    if (source.fd() < 0) fail(file, "open", errno);
    struct stat status {};
    if (::fstat(source.fd(), &status) != 0) fail(file, "open", errno);
    if (S_ISDIR(status.st_mode)) fail(file, "read", EISDIR);
    if (!S_ISREG(status.st_mode)) throw Error(Exit::io_failed, fmt::format("{}: cannot read: is not a regular file", file.string()));
    std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count = ::read(source.fd(), bytes.data() + done, std::min<std::size_t>(bytes.size() - done, 1 << 30));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(file, "read", errno);
        if (count == 0) break;
        done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return bytes;
}

}  // namespace quadrille

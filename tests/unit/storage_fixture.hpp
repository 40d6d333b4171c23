// What the storage tests share: child processes in which system calls are refused, limits are small and disks are tiny; and bytes to move.
// No test macros here.
#pragma once
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "storage/nvme_file.hpp"
#include "unit/temporary_directory.hpp"

namespace quadrille::storage_test {

// `count` bytes that depend on `key`, at `shift` bytes past a multiple of file_alignment, between two strips that nobody may touch.
class Bytes {
  public:
    Bytes(std::uint64_t key, std::int64_t count, std::int64_t shift = 0)
        : memory_(aligned_memory(shift + count + 2 * file_alignment, "for a test")), count_(count), shift_(shift) {
        std::memset(memory_.get(), strip, static_cast<std::size_t>(shift + count + 2 * file_alignment));
        for (std::int64_t i = 0; i < count; ++i)
            data()[i] = static_cast<std::byte>(random_bits(key, static_cast<std::uint64_t>(i)));
    }
    std::byte* data() const { return memory_.get() + file_alignment + shift_; }
    std::span<std::byte> span() const { return {data(), static_cast<std::size_t>(count_)}; }
    bool equals(const Bytes& other) const {
        return count_ == other.count_ && std::memcmp(data(), other.data(), static_cast<std::size_t>(count_)) == 0;
    }
    bool strips_are_whole() const {
        const std::int64_t end = file_alignment + shift_ + count_;
        for (std::int64_t i = 0; i < file_alignment; ++i)
            if (memory_[static_cast<std::size_t>(i)] != std::byte{strip} || memory_[static_cast<std::size_t>(end + i)] != std::byte{strip})
                return false;
        return true;
    }

  private:
    static constexpr unsigned char strip = 0xa5;
    AlignedMemory memory_;
    std::int64_t count_, shift_;
};

// Runs `act` in a child process and returns what it returns, or "Error EXIT: its message", or how the child ended.
inline std::string in_child(const std::function<std::string()>& act) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    std::fflush(nullptr);  // or the child says it again
    const pid_t child = fork();
    if (child == 0) {
        std::string said;
        try {
            said = act();
        } catch (const Error& e) {
            said = fmt::format("Error {}: {}", static_cast<int>(e.exit()), e.what());
        } catch (const std::exception& e) {
            said = e.what();
        }
        const bool told = write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
        _exit(told ? 0 : 1);
    }
    close(ends[1]);
    std::string said;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = read(ends[0], piece.data(), piece.size())) > 0;) said.append(piece.data(), static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return said + fmt::format("killed by signal {}", WTERMSIG(status));
    return said;
}

// A system call that fails with `error` where its argument number `argument`, masked, has the value.
struct Refusal {
    long call = 0;
    int error = 0;
    unsigned argument = 0, mask = 0, value = 0;
};

// For the rest of this process's life, as a container's seccomp profile does it; false where that is not allowed.
inline bool refuse(const std::vector<Refusal>& refusals) {
    std::vector<sock_filter> filter;
    for (const Refusal& r : refusals) {
        const auto at = static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * r.argument);  // the low half, little-endian
        filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(r.call), 0, 4));
        filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
        filter.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, r.mask));
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r.value, 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(r.error)));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A tmpfs of `bytes` at a directory, for this process alone, which should be a child; false where only root may.
inline bool mount_small_disk(const std::filesystem::path& at, std::int64_t bytes) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    return mount("tmpfs", at.c_str(), "tmpfs", 0, fmt::format("size={}", bytes).c_str()) == 0;
}

// What a child says that could not be made so.
constexpr const char* skipped = "skipped";
inline void skip(const char* why) { std::printf("skipped: %s\n", why); }

// Writes `count` bytes from unaligned memory, reads them back elsewhere; what the file is and the notes, or "damaged".
inline std::string round_trip(const NvmeOptions& options, std::int64_t count = 100001) {
    const Bytes given(1, count, 1), got(2, count, 3);
    NvmeFile file(options);
    file.wait(file.write(0, given.data(), count));
    file.wait(file.read(0, got.data(), count));
    std::string said = got.equals(given) && got.strips_are_whole() ? "whole" : "damaged";
    said += file.carrier() == Carrier::io_uring ? ", io_uring" : ", threads";
    said += file.access() == Access::direct ? ", direct" : ", buffered";
    for (const std::string& note : file.notes()) said += "\n" + note;
    return said;
}

inline bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace quadrille::storage_test

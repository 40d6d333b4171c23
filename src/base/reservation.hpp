// Memory that is made once and kept for the life of a run. Huge pages are asked for and every page is touched at once by several threads, so that no
// step pays for a page fault.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace quadrille {

class Reservation {
  public:
    Reservation() = default;
    // So many bytes, zero, aligned to a huge page. `what` is for the message only: "rank 3: 4096 bytes of host memory for a test". Throws
    // Error{no_memory} if it cannot be had, and std::system_error where a thread cannot be started.
    Reservation(std::int64_t bytes, const std::string& what, int threads);
    ~Reservation() { release(); }
    Reservation(Reservation&& from) noexcept { swap(from); }
    Reservation& operator=(Reservation&& from) noexcept {
        swap(from);
        return *this;
    }

    std::byte* data() const { return data_; }
    std::int64_t size() const { return size_; }
    // Bytes that the system gave in huge pages when they were touched; none where it does not tell.
    std::optional<std::int64_t> huge_pages() const { return huge_pages_; }

  private:
    void swap(Reservation& other) noexcept;
    void release();

    void* mapping_ = nullptr;
    std::int64_t mapped_ = 0;
    std::byte* data_ = nullptr;
    std::int64_t size_ = 0;
    std::optional<std::int64_t> huge_pages_ = 0;
};

}  // namespace quadrille

#include "comm/staging.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace quadrille {

Staging::Staging(std::int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    const auto size = static_cast<std::size_t>(bytes);
    void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        throw Error(Exit::no_memory, fmt::format("comm: no {} bytes for message staging: {}", bytes, std::strerror(errno)));
#ifdef MADV_HUGEPAGE
    madvise(pages, size, MADV_HUGEPAGE);  // a wish: without huge pages all is merely slower
#endif
    data_ = static_cast<std::byte*>(std::memset(pages, 0, size));
}

Staging::~Staging() {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}

Staging::Staging(Staging&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Staging& Staging::operator=(Staging&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

}  // namespace quadrille

#include "runtime/arena.hpp"

#include "base/error.hpp"

namespace quadrille {
namespace {

std::int64_t bytes_in(const std::array<std::int64_t, tier_count>& bytes, Tier t) { return bytes[static_cast<std::size_t>(t)]; }

}  // namespace

Arena::Arena(Device& device, const std::array<std::int64_t, tier_count>& bytes, std::string_view purpose, std::int64_t rank, int threads)
    : device_(device) {
    require(bytes_in(bytes, Tier::nvme) == 0, "runtime: the nvme tier is no memory");
    const auto what = [&](Tier t) { return fmt::format("rank {}: {} bytes of {} memory for {}", rank, bytes_in(bytes, t), name_of(t), purpose); };
    if (const std::int64_t n = bytes_in(bytes, Tier::device); n > 0)
        device_memory_ = {device.reserve(n, what(Tier::device)), static_cast<std::size_t>(n)};
    host_ = Reservation(bytes_in(bytes, Tier::host), what(Tier::host), threads);
    if (host_.size() > 0) device.attach({host_.data(), static_cast<std::size_t>(host_.size())});
}

Arena::~Arena() {
    file_.reset();  // its transfers use the memory
    if (host_.size() > 0) device_.detach();
}

void Arena::open_file(NvmeOptions options) {
    require(!file_, "runtime: the nvme tier is there already");
    for (const Tier t : {Tier::device, Tier::host})
        if (size(t) > 0 && (t == Tier::host || device_.shares_memory())) options.memory.emplace_back(data(t), static_cast<std::size_t>(size(t)));
    const std::int64_t staging = NvmeFile::staging_bytes(options);
    require(size(Tier::host) >= staging, "runtime: host memory has no room for the nvme tier's staging");
    options.staging = {data(Tier::host) + size(Tier::host) - staging, static_cast<std::size_t>(staging)};
    file_.emplace(options);
}

std::optional<std::int64_t> Arena::huge_pages(Tier t) const {
    if (t == Tier::device) return device_memory_.empty() ? 0 : device_.huge_pages();
    return t == Tier::host ? host_.huge_pages() : 0;
}

std::int64_t Arena::size(Tier t) const {
    switch (t) {
        case Tier::device: return std::ssize(device_memory_);
        case Tier::host: return host_.size();
        case Tier::nvme: return file_ ? file_->bytes() : 0;
    }
    return 0;
}

}  // namespace quadrille

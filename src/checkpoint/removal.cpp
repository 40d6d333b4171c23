#include "checkpoint/removal.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

namespace quadrille {

void Removal::begin(std::vector<std::filesystem::path> folders) {
    if (thread_.joinable()) thread_.join();
    folders_ = std::move(folders);
    if (folders_.empty()) return;
    try {
        thread_ = std::thread([this] { remove(); });
    } catch (const std::system_error&) {
        remove();
    }
}

std::vector<std::string> Removal::wait() {
    if (thread_.joinable()) thread_.join();
    return std::exchange(failed_, {});
}

void Removal::remove() {
    for (const std::filesystem::path& folder : folders_) {
        std::error_code reason;
        std::filesystem::remove_all(folder, reason);
        if (reason) failed_.push_back(fmt::format("{}: cannot be removed: {}", folder.string(), reason.message()));
    }
}

}  // namespace quadrille

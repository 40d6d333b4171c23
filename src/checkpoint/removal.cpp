#include "checkpoint/removal.hpp"

#include "base/error.hpp"
#include "comm/world.hpp"

#include <new>
#include <utility>

namespace quadrille {

void Removal::begin(std::vector<std::filesystem::path> folders) {
    require(!thread_.joinable(), "checkpoint: an older removal is not waited for");
    reasons_.assign(folders.size(), {});
    folders_ = std::move(folders);
    seconds_ = 0;
    if (folders_.empty()) return;
    try {
        thread_ = std::thread([this] { remove(); });
    } catch (const std::exception&) {  // no thread, or no memory for one
        remove();
    }
}

std::vector<std::string> Removal::wait() {
    if (thread_.joinable()) thread_.join();
    std::vector<std::string> failed;
    for (std::size_t i = 0; i < folders_.size(); ++i)
        if (reasons_[i]) failed.push_back(fmt::format("{}: cannot be removed: {}", folders_[i].string(), reasons_[i].message()));
    folders_.clear();
    return failed;
}

void Removal::remove() {
    const double begun = now();
    for (std::size_t i = 0; i < folders_.size(); ++i) {
        try {
            std::filesystem::remove_all(folders_[i], reasons_[i]);
        } catch (const std::bad_alloc&) {  // ends no run, for nobody needs the folder
            reasons_[i] = std::make_error_code(std::errc::not_enough_memory);
        }
    }
    seconds_ = now() - begun;
}

}  // namespace quadrille

#include "exchange/tensor_folder.hpp"

#include "base/error.hpp"
#include "exchange/json.hpp"

#include <set>

namespace quadrille {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t most_index = 100'000'000;  // bytes

[[noreturn]] void damaged(const fs::path& file, const std::string& why) {
    throw Damaged(Exit::io_failed, fmt::format("{}: {}", file.string(), why));
}

// The index's weight_map: the file of each tensor, a plain name in the same folder.
std::map<std::string, std::string> file_of_each(const fs::path& index) {
    const json found = read_json(index, most_index);
    const auto map = found.find("weight_map");
    if (!found.is_object() || map == found.end() || !map->is_object())
        damaged(index, "has no weight_map, the file of each tensor");
    std::map<std::string, std::string> files;
    for (const auto& [tensor, file] : map->items()) {
        const std::string name = file.is_string() ? file.get<std::string>() : "";
        if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..")
            damaged(index, fmt::format("has tensor '{}' in {}, allowed: a file of this folder", tensor, file.dump()));
        files[tensor] = name;
    }
    return files;
}

}  // namespace

TensorFolder::TensorFolder(const fs::path& folder) {
    std::error_code unreadable;
    const fs::path whole = folder / whole_name, index = folder / index_name;
    if (fs::exists(whole, unreadable)) {
        add(whole);
        return;
    }
    if (!fs::exists(index, unreadable))
        throw Error(Exit::refused, fmt::format("{}: holds neither {} nor {}", folder.string(), whole_name, index_name));
    const std::map<std::string, std::string> file_of = file_of_each(index);
    std::set<std::string> names;
    for (const auto& [tensor, file] : file_of) names.insert(file);
    for (const std::string& name : names) add(folder / name);
    check_index(index, file_of);
}

void TensorFolder::add(const fs::path& file) {
    files_.push_back(std::make_unique<SafetensorsFile>(file));
    for (const SafeTensor& t : files_.back()->tensors()) {
        const auto [at, fresh] = places_.try_emplace(t.name, Place{files_.back().get(), &t});
        if (!fresh) damaged(file, fmt::format("has tensor '{}', which {} has too", t.name, at->second.file->path().string()));
    }
}

void TensorFolder::check_index(const fs::path& index, const std::map<std::string, std::string>& file_of) const {
    for (const auto& [tensor, file] : file_of) {
        const auto at = places_.find(tensor);
        if (at == places_.end() || at->second.file->path().filename() != file)
            damaged(index.parent_path() / file, fmt::format("has no tensor '{}', which {} has there", tensor, index.filename().string()));
    }
    for (const auto& [tensor, place] : places_)
        if (!file_of.contains(tensor))
            damaged(index, fmt::format("does not name tensor '{}', which {} has", tensor, place.file->path().string()));
}

}  // namespace quadrille

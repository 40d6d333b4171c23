#include "exchange/json.hpp"

#include "checkpoint/plain_file.hpp"

#include <set>
#include <string>
#include <vector>

namespace quadrille {

using nlohmann::json;

namespace {

constexpr int most_depth = 64;  // of lists and objects in each other; deeper ones would take many times the file's size in memory

}  // namespace

json parse_json(std::span<const std::byte> text, const std::filesystem::path& file) {
    std::vector<std::set<std::string>> keys;  // of the objects that are open
    std::string twice;
    const json::parser_callback_t look = [&](int depth, json::parse_event_t event, json& parsed) {
        if (depth > most_depth)
            throw Damaged(Exit::io_failed, fmt::format("{}: its JSON is nested deeper than {} levels", file.string(), most_depth));
        if (event == json::parse_event_t::object_start) keys.emplace_back();
        if (event == json::parse_event_t::object_end) keys.pop_back();
        if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) twice = parsed.get<std::string>();
        return true;
    };
    json found;
    const char* const begin = reinterpret_cast<const char*>(text.data());
    try {
        found = json::parse(begin, begin + text.size(), look);
    } catch (const json::exception& e) {
        throw Damaged(Exit::io_failed, fmt::format("{}: is no JSON: {}", file.string(), e.what()));
    }
    if (!twice.empty()) throw Damaged(Exit::io_failed, fmt::format("{}: has the key '{}' twice in one object", file.string(), twice));
    return found;
}

json read_json(const std::filesystem::path& file, std::int64_t most) {
    const PlainFile plain(file, PlainFile::Open::read);
    const std::int64_t bytes = plain.size();
    if (bytes > most) throw Damaged(Exit::io_failed, fmt::format("{}: has {} bytes, allowed: up to {}", file.string(), bytes, most));
    std::vector<std::byte> text(static_cast<std::size_t>(bytes));
    plain.read(0, text);
    return parse_json(text, file);
}

}  // namespace quadrille

#include "config/difference.hpp"

#include "base/error.hpp"
#include "config/convert.hpp"
#include "config/keys.hpp"
#include "config/utf8.hpp"
#include "config/yaml_reader.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace quadrille::input {
namespace {

// Of `model`, what changes what is computed and no parameter's shape or meaning.
constexpr std::string_view free_in_model[] = {"model.norm_eps", "model.rotary_base", "model.hidden_dropout", "model.attention_dropout",
                                              "model.init_std"};
constexpr std::string_view not_told[] = {"device.memory_limit", "checkpoint.resume", "output.overwrite"};

bool must_match(const Key& key, const Config& now) {
    const std::string path = key.path();
    if (path == "model.seq_length") return now.model.position_embedding == PositionEmbedding::learned;  // the table's length
    return key.section == "model" && std::find(std::begin(free_in_model), std::end(free_in_model), path) == std::end(free_in_model);
}

NodePtr read(const std::string& text) {
    Problems problems("the stored input", {});
    const NodePtr document = read_yaml(text, 0, problems);
    if (!document || document->kind != Node::Kind::map)
        throw Error(Exit::io_failed, "the input that the checkpoint or record holds is no input: it is damaged, or of another program");
    return document;
}

// The node of a key; null where the document has none.
const Node* find(const Node& document, const std::string& path) {
    const Node* at = &document;
    for (std::size_t begin = 0; at && begin <= path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        const std::string name = path.substr(begin, end - begin);
        const auto entry = std::find_if(at->entries.begin(), at->entries.end(), [&](const Entry& e) { return e.key == name; });
        at = entry == at->entries.end() ? nullptr : entry->value.get();
        begin = end + 1;
    }
    return at;
}

std::string one_line(const Key& key, const Value& value) {
    constexpr std::size_t most = 80;
    if (const auto* paths = std::get_if<std::vector<std::string>>(&value); paths && key.type == KeyType::paths)
        return paths->size() < 4 ? fmt::format("[{}]", fmt::join(*paths, ", "))
                                 : fmt::format("[{}, ... {}] ({} in all)", paths->front(), paths->back(), paths->size());
    if (const auto* map = std::get_if<std::map<std::string, std::string>>(&value)) {
        std::string text;
        for (const auto& [name, entry] : *map) text += (text.empty() ? "" : ", ") + name + ": " + entry;
        return "{" + shortened(text, most) + "}";
    }
    return value_text(key, value);
}

// Keys whose `auto` is another key's value: where both inputs have them so, the other tells.
constexpr std::pair<std::string_view, std::string_view> followers[] = {{"sharding.shard_size", "grid.dp"}, {"optimizer.decay_steps", "train.steps"}};

std::string value_now(const std::string& path, const Config& now) {
    const auto key = std::find_if(keys().begin(), keys().end(), [&](const Key& k) { return k.path() == path; });
    return one_line(*key, key->binding.get(now));
}

// Whether a key that differs says nothing of its own: it follows another, or is of a compression that neither run has.
bool says_nothing(const Difference& d, const std::string& former, const Config& now) {
    const std::string method = "comm.compression.method";
    if (d.key.starts_with("comm.compression.") && d.key != method)
        return former_value(former, method) == "none" && value_now(method, now) == "none";
    for (const auto& [follower, leader] : followers)
        if (d.key == follower) return d.before == former_value(former, std::string(leader)) && d.now == value_now(std::string(leader), now);
    return false;
}

}  // namespace
}  // namespace quadrille::input

namespace quadrille {

using namespace input;

std::vector<Difference> differences(const std::string& former, const Config& now) {
    const NodePtr document = read(former);
    std::vector<Difference> found;
    for (const Key& key : keys()) {
        const Node* node = find(*document, key.path());
        const bool told = std::find(std::begin(not_told), std::end(not_told), key.path()) == std::end(not_told);
        if (!key.binding.get || !told || !node) continue;  // an older program's input lacks keys
        const Converted before = convert(key, *node);
        const Value value = key.binding.get(now);
        if (before.problem.empty() && before.value == value) continue;
        found.push_back({key.path(), before.problem.empty() ? one_line(key, before.value) : node->text, one_line(key, value), must_match(key, now)});
    }
    std::erase_if(found, [&](const Difference& d) { return says_nothing(d, former, now); });
    return found;
}

std::string former_value(const std::string& former, const std::string& key) {
    const NodePtr document = read(former);
    const Node* node = find(*document, key);
    return node && node->kind == Node::Kind::scalar ? node->text : "";
}

bool of_model_only(const std::string& former) {
    const NodePtr document = read(former);
    return document->entries.size() == 1 && document->entries.front().key == "model";
}

bool without_adapters(const std::string& former) {
    const NodePtr document = read(former);
    const Node* rank = find(*document, "model.lora.rank");
    return !rank || rank->is_null();
}

}  // namespace quadrille

// export and import: their words, and what they say of what they have done.
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/say.hpp"
#include "config/load.hpp"
#include "config/numbers.hpp"
#include "exchange/exchange.hpp"
#include "train/commands.hpp"

#include <fmt/ranges.h>

namespace quadrille {
namespace {

constexpr std::int64_t least_shard = 1 << 10;  // bytes: less is a unit forgotten

DType dtype_named(const std::string& name) {
    for (const DType t : {DType::f32, DType::bf16, DType::f16})
        if (name == (t == DType::f32 ? "fp32" : t == DType::f16 ? "fp16" : "bf16")) return t;
    throw Error(Exit::refused, fmt::format("export: --dtype takes fp32, bf16 or fp16, not '{}'", name));
}

std::int64_t shard_named(const std::string& text) {
    const input::Parsed<std::int64_t> bytes = input::parse_bytes(text);
    if (!bytes.problem.empty() || bytes.value < least_shard)
        throw Error(Exit::refused, fmt::format("export: --shard takes bytes, {} or more, not '{}'", least_shard, text));
    return bytes.value;
}

void refuse_option(const std::string& command, const std::string& word) {
    if (word.empty()) throw Error(Exit::refused, command + ": a word of the command line is empty: a variable of the shell that is not set?");
    if (word[0] == '-') throw Error(Exit::refused, fmt::format("{}: unknown option {}; {}", command, word, form(command)));
}

}  // namespace

int export_command(const Words& words) {
    ExportSettings settings;
    Words paths;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool followed = i + 1 < words.size();
        if (words[i] == "--dtype" && followed) settings.dtype = dtype_named(words[++i]);
        else if (words[i] == "--shard" && followed) settings.most_bytes = shard_named(words[++i]);
        else if (words[i] == "--merge-lora") settings.merge_lora = true;
        else if (words[i] == "--replace") settings.replace = true;
        else {
            refuse_option("export", words[i]);
            paths.push_back(words[i]);
        }
    }
    if (paths.size() != 2) throw Error(Exit::refused, form("export"));
    const Exported out = export_checkpoint(paths[0], paths[1], settings);
    for (const std::string& note : out.notes) say(note);
    fmt::print("{} to {}: {} with {} parameters, {} in {}\n", out.checkpoint.string(), paths[1], out.family, out.parameters, format_bytes(out.bytes),
               format_number_of(out.files, "file"));
    return 0;
}

int import_command(const Words& words) {
    ImportSettings settings;
    Words paths;
    for (const std::string& word : words) {
        if (word == "--replace") {
            settings.replace = true;
            continue;
        }
        refuse_option("import", word);
        (paths.size() < 2 ? paths : settings.overrides).push_back(word);
    }
    if (paths.size() != 2) throw Error(Exit::refused, form("import"));
    const Imported in = import_model(paths[0], paths[1], settings);
    for (const std::string& note : in.notes) say(note);
    fmt::print("# {} to {}: {} parameters, {}\n", paths[0], in.checkpoint.string(), in.parameters, format_bytes(in.bytes));
    if (!in.left.empty()) fmt::print("# not taken, for they are no parameters: {}\n", fmt::join(in.left, ", "));
    fmt::print("# A run begins with it by checkpoint.resume={} and this section of its input:\n{}", in.checkpoint.string(), model_section(in.config));
    return 0;
}

}  // namespace quadrille

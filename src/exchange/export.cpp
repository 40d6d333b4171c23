#include "base/error.hpp"
#include "checkpoint/steps.hpp"
#include "exchange/exchange.hpp"
#include "exchange/model_json.hpp"
#include "exchange/stored_parameters.hpp"
#include "exchange/target.hpp"
#include "exchange/tensor_folder.hpp"
#include "record/replace_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t strip = std::int64_t{1} << 20;  // elements read at once, but at least a row

// One of their tensors, from ours.
std::vector<float> assembled(const TheirTensor& t, StoredParameters& parameters) {
    std::vector<float> tensor(static_cast<std::size_t>(t.elements())), rows;
    for (const OurPart& p : t.parts) {
        const std::int64_t many = std::max<std::int64_t>(1, strip / p.in);
        for (std::int64_t row = 0; row < p.out; row += many) {
            rows.resize(static_cast<std::size_t>(std::min(many, p.out - row) * p.in));
            parameters.read_rows(p, row, rows);
            place_rows(t, p, row, rows, tensor);
        }
    }
    return tensor;
}

// Runs of tensors that go into one file each.
std::vector<std::vector<TheirTensor>> shards_of(const std::vector<TheirTensor>& layout, const ExportSettings& settings) {
    std::vector<std::vector<TheirTensor>> shards(1);
    std::int64_t bytes = 0;
    for (const TheirTensor& t : layout) {
        const std::int64_t more = t.elements() * bytes_of(settings.dtype);
        if (!shards.back().empty() && bytes + more > settings.most_bytes) {
            shards.emplace_back();
            bytes = 0;
        }
        shards.back().push_back(t);
        bytes += more;
    }
    return shards;
}

void write_shard(const fs::path& file, const std::vector<TheirTensor>& shard, StoredParameters& parameters, DType dtype) {
    std::vector<SafeTensor> tensors;
    for (const TheirTensor& t : shard) {
        SafeTensor& s = tensors.emplace_back();
        s.name = t.name;
        s.shape = t.shape;
    }
    SafetensorsWriter writer(file, std::move(tensors), dtype);
    for (const TheirTensor& t : shard) writer.write_next(assembled(t, parameters));
    writer.finish();
}

// Their files have no place for adapters beside the weights.
void check_adapters(const StoredParameters& parameters, const ExportSettings& settings) {
    const LoraConfig& lora = parameters.config().lora;
    const std::string folder = parameters.folder().string();
    if (lora.on() && !settings.merge_lora)
        throw Error(Exit::refused, fmt::format("export: {} has adapters (model.lora.rank {}), for which the files have no place, allowed: "
                                               "--merge-lora, which adds them to the weights", folder, lora.rank));
    if (!lora.on() && settings.merge_lora)
        throw Error(Exit::refused, fmt::format("export: {} has no adapters for --merge-lora to add to the weights, allowed: without it", folder));
}

void write_text(const fs::path& file, const std::string& text) { replace_file(file, std::as_bytes(std::span(text))); }

}  // namespace

Exported export_checkpoint(const fs::path& checkpoint, const fs::path& folder, const ExportSettings& settings) {
    const fs::path into = plain_name(folder);
    require_export_target(into, settings.replace);
    StoredParameters parameters(checkpoint);
    const Config& config = parameters.config();
    check_adapters(parameters, settings);
    const Family family = family_of(config.model);
    const std::vector<TheirTensor> layout = layout_of(family, config.model);
    parameters.check(layout);
    Exported out{parameters.folder(), std::string(name_of(family)), 0, 0, 0, remove_leftovers_of(into)};
    PartialFolder partial(into);
    const std::vector<std::vector<TheirTensor>> shards = shards_of(layout, settings);
    nlohmann::json weight_map;
    for (std::size_t i = 0; i < shards.size(); ++i) {
        const std::string name = shards.size() == 1 ? whole_name : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
        write_shard(partial.path() / name, shards[i], parameters, settings.dtype);
        for (const TheirTensor& t : shards[i]) {
            weight_map[t.name] = name;
            out.parameters += t.elements();
        }
    }
    out.bytes = out.parameters * bytes_of(settings.dtype);
    out.files = std::ssize(shards);
    if (shards.size() > 1)
        write_text(partial.path() / index_name, nlohmann::json{{"metadata", {{"total_size", out.bytes}}}, {"weight_map", weight_map}}.dump(2) + "\n");
    write_text(partial.path() / "config.json", model_json(family, config.model, settings.dtype, config.data.end_of_document));
    require_export_target(into, settings.replace);  // again: that was a while ago
    partial.keep();
    return out;
}

}  // namespace quadrille

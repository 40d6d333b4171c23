#include "base/error.hpp"
#include "base/format.hpp"
#include "checkpoint/checksums.hpp"
#include "checkpoint/steps.hpp"
#include "checkpoint/stored_file.hpp"
#include "config/load.hpp"
#include "exchange/exchange.hpp"
#include "exchange/model_json.hpp"
#include "exchange/tensor_folder.hpp"
#include "record/replace_file.hpp"

#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t strip = std::int64_t{1} << 20;  // elements read at once, but at least a row
constexpr std::int64_t float_bytes = sizeof(float);

// The checkpoint at `path`; its parameters' checksums are right.
Checkpoint opened(const fs::path& path) {
    std::error_code unreadable;
    if (!fs::exists(path, unreadable)) throw Error(Exit::refused, fmt::format("export: {} does not exist", path.string()));
    fs::path folder = path;
    if (step_of(path) < 0 && !fs::exists(path / "checkpoint.h5", unreadable)) {
        const std::vector<fs::path> steps = steps_in(path);
        if (steps.empty()) throw Error(Exit::refused, fmt::format("export: {} holds no checkpoint, no folder step-*", path.string()));
        folder = steps[0];
    }
    Checkpoint c = read_structures(folder);
    const PlainFile file(c.file(), PlainFile::Open::read);
    std::erase_if(c.tensors, [](const StoredTensor& t) { return !t.path.starts_with("/parameters/"); });
    std::vector<Sums> sums;
    for (const StoredTensor& t : c.tensors) sums.push_back(sums_of(file, t, [] {}));
    if (const std::string damaged = damage(c, sums); !damaged.empty()) throw Error(Exit::io_failed, damaged);
    return c;
}

// Throws unless the checkpoint has what the layout takes, and nothing else.
void check_parameters(const Checkpoint& c, const std::vector<TheirTensor>& layout) {
    std::set<std::string> taken;
    for (const TheirTensor& t : layout)
        for (const OurPart& p : t.parts) {
            const StoredTensor* stored = c.find("/parameters/" + p.name);
            if (!stored || stored->shape != p.shape)
                throw Error(Exit::io_failed, fmt::format("{}: {} is {}, and by the checkpoint's own input it is [{}]", c.file().string(), p.name,
                                                         stored ? fmt::format("[{}]", fmt::join(stored->shape, ", ")) : "missing",
                                                         fmt::join(p.shape, ", ")));
            taken.insert(stored->path);
        }
    for (const StoredTensor& t : c.tensors)
        if (!taken.contains(t.path)) throw Error(Exit::io_failed, fmt::format("{}: {} is no parameter of its model", c.file().string(), t.path));
}

// One of their tensors, from ours.
std::vector<float> assembled(const TheirTensor& t, const Checkpoint& c, const PlainFile& file) {
    std::vector<float> tensor(static_cast<std::size_t>(t.elements())), rows;
    for (const OurPart& p : t.parts) {
        const StoredTensor& stored = *c.find("/parameters/" + p.name);
        const std::int64_t many = std::max<std::int64_t>(1, strip / p.in);
        for (std::int64_t row = 0; row < p.out; row += many) {
            rows.resize(static_cast<std::size_t>(std::min(many, p.out - row) * p.in));
            file.read(stored.offset + row * p.in * float_bytes, std::as_writable_bytes(std::span(rows)));
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

void write_shard(const fs::path& file, const std::vector<TheirTensor>& shard, const Checkpoint& c, const PlainFile& from, DType dtype) {
    std::vector<SafeTensor> tensors;
    for (const TheirTensor& t : shard) {
        SafeTensor& s = tensors.emplace_back();
        s.name = t.name;
        s.shape = t.shape;
    }
    SafetensorsWriter writer(file, std::move(tensors), dtype);
    for (const TheirTensor& t : shard) writer.write_next(assembled(t, c, from));
    writer.finish();
}

void write_text(const fs::path& file, const std::string& text) { replace_file(file, std::as_bytes(std::span(text))); }

}  // namespace

Exported export_checkpoint(const fs::path& checkpoint, const fs::path& folder, const ExportSettings& settings) {
    const fs::path into = fs::absolute(folder / "file").lexically_normal().parent_path();  // without a slash at its end
    std::error_code unreadable;
    if (fs::exists(into, unreadable) && !fs::is_empty(into, unreadable))
        throw Error(Exit::refused, fmt::format("export: {} is not empty, allowed: a new folder", folder.string()));
    const Checkpoint c = opened(checkpoint);
    const Config config = parse_resolved(c.point.config_yaml);
    if (config.lora.on())
        throw Error(Exit::refused, fmt::format("export: {} has adapters (model.lora.rank {}), allowed: a model without", c.folder.string(),
                                               config.lora.rank));
    const Family family = family_of(config.model);
    const std::vector<TheirTensor> layout = layout_of(family, config.model);
    check_parameters(c, layout);
    const PlainFile from(c.file(), PlainFile::Open::read);
    Exported out{c.folder, std::string(name_of(family)), 0, 0, 0};
    PartialFolder partial(into);
    const std::vector<std::vector<TheirTensor>> shards = shards_of(layout, settings);
    nlohmann::json weight_map;
    for (std::size_t i = 0; i < shards.size(); ++i) {
        const std::string name = shards.size() == 1 ? whole_name : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
        write_shard(partial.path() / name, shards[i], c, from, settings.dtype);
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
    partial.keep();
    return out;
}

}  // namespace quadrille

#include "base/error.hpp"
#include "checkpoint/checksums.hpp"
#include "checkpoint/steps.hpp"
#include "checkpoint/stored_file.hpp"
#include "config/load.hpp"
#include "exchange/exchange.hpp"
#include "exchange/model_json.hpp"
#include "exchange/target.hpp"
#include "exchange/tensor_folder.hpp"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <set>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t strip = std::int64_t{1} << 20;  // elements read at once, but at least a row

// A tensor of the layout and where it is.
struct Source {
    TheirTensor tensor;
    TensorFolder::Place place;
};

// Finds each tensor of the layout, by its name or without its prefix, and throws unless shapes agree and nothing is left over.
std::vector<Source> sources_of(const TensorFolder& folder, const fs::path& name, Family family, const ModelConfig& m,
                               std::vector<std::string>& left) {
    std::vector<Source> sources;
    std::set<std::string, std::less<>> taken;
    std::string problems;
    // Before a layout is made of whatever number stands there.
    if (m.num_layers > std::ssize(folder.places()))
        throw Error(Exit::refused, fmt::format("{}: has {} tensors in all, and by its config.json {} layers", name.string(), folder.places().size(),
                                               m.num_layers));
    const auto problem = [&](const std::string& what) { problems += fmt::format("{}{}: {}", problems.empty() ? "" : "\n", name.string(), what); };
    for (TheirTensor& t : layout_of(family, m)) {
        auto at = folder.places().find(t.name);
        if (at == folder.places().end()) at = folder.places().find(std::string(bare_name(family, t.name)));
        if (at == folder.places().end()) {
            problem(fmt::format("has no tensor {}, which a model of its config.json has", t.name));
            continue;
        }
        const std::vector<std::int64_t>& shape = at->second.tensor->shape;
        if (shape != t.shape)
            problem(fmt::format("{} is [{}], and by config.json and the overrides it is [{}]", at->first, fmt::join(shape, ", "),
                                fmt::join(t.shape, ", ")));
        dtype_of(*at->second.tensor, at->second.file->path());
        taken.insert(at->first);
        sources.push_back({std::move(t), at->second});
    }
    for (const auto& [tensor, place] : folder.places()) {
        if (taken.contains(tensor)) continue;
        if (may_be_left(family, m, tensor)) left.push_back(tensor);
        else problem(fmt::format("has a tensor {}, which a model of its config.json is without", tensor));
    }
    if (!problems.empty()) throw Error(Exit::refused, problems);
    return sources;
}

// One of our parameters.
std::vector<float> part_of(const Source& s, const OurPart& p) {
    std::vector<float> part(static_cast<std::size_t>(p.out * p.in)), rows;
    if (!s.tensor.transposed) {
        s.place.file->read(*s.place.tensor, p.before * p.in, part);
        return part;
    }
    const std::int64_t outs = s.tensor.outs(), many = std::max<std::int64_t>(1, strip / outs);
    for (std::int64_t row = 0; row < p.in; row += many) {
        rows.resize(static_cast<std::size_t>(std::min(many, p.in - row) * outs));
        s.place.file->read(*s.place.tensor, row * outs, rows);
        take_columns(s.tensor, p, row, rows, part);
    }
    return part;
}

// Writes every parameter to its place in the file, and reads it back for its checksum.
void fill(const fs::path& name, const std::vector<Source>& sources, std::vector<StoredTensor>& stored) {
    PlainFile file(name, PlainFile::Open::write);
    std::vector<std::uint64_t> written;
    std::size_t next = 0;
    for (const Source& s : sources)
        for (const OurPart& p : s.tensor.parts) {
            const std::vector<float> values = part_of(s, p);
            file.write(stored[next++].offset, std::as_bytes(std::span(values)));
            written.push_back(XXH3_64bits(values.data(), values.size() * sizeof(float)));
        }
    file.sync();
    for (std::size_t i = 0; i < stored.size(); ++i) {
        stored[i].checksum = sums_of(file, stored[i], [] {}).checksum;
        if (stored[i].checksum != written[i])
            throw Error(Exit::io_failed, fmt::format("{}: {} reads back as something else than was written", name.string(), stored[i].path));
    }
}

}  // namespace

Imported import_model(const fs::path& folder, const fs::path& directory, const ImportSettings& settings) {
    std::error_code unreadable;
    if (!fs::is_directory(folder, unreadable)) throw Error(Exit::refused, fmt::format("import: {} is no folder", folder.string()));
    if (!fs::exists(folder / "config.json", unreadable))
        throw Error(Exit::refused, fmt::format("import: {} holds no config.json", folder.string()));
    const fs::path into = plain_name(directory) / step_name(0);
    require_import_target(into.parent_path(), settings.replace);
    const TheirModel theirs = read_model_json(folder / "config.json");
    for (const std::string& o : settings.overrides)
        if (!o.starts_with("model."))
            throw Error(Exit::refused,
                        fmt::format("import: '{}' says nothing of the model, allowed: model.key=value; all else is the run's to say", o));
    Imported out;
    out.config.model = theirs.model;
    out.config = load_config_text(model_section(out.config), (folder / "config.json").string(), settings.overrides, {});
    if (out.config.lora.on())
        throw Error(Exit::refused, "import: model.lora.rank is given, allowed: a model without adapters; a run that resumes from it may have them");
    if (family_of(out.config.model) != theirs.family)
        throw Error(Exit::refused, fmt::format("import: with these overrides it is no {} any more, but a {}", name_of(theirs.family),
                                               name_of(family_of(out.config.model))));
    const TensorFolder tensors(folder);
    const std::vector<Source> sources = sources_of(tensors, folder, theirs.family, out.config.model, out.left);
    std::vector<StoredTensor> stored;
    for (const Source& s : sources)
        for (const OurPart& p : s.tensor.parts) {
            stored.push_back({"/parameters/" + p.name, p.shape});
            out.parameters += p.out * p.in;
        }
    TrainingPoint point;
    point.seed = out.config.train.seed;
    point.config_yaml = model_section(out.config);  // no run has been
    out.notes = remove_leftovers_of(into);
    PartialFolder partial(into);
    const fs::path file = partial.path() / "checkpoint.h5";
    make_file(file, point, stored);
    fill(file, sources, stored);
    seal_file(file, stored);
    require_import_target(into.parent_path(), settings.replace);  // again: that was a while ago
    partial.keep();
    for (const StoredTensor& t : stored) out.bytes += t.bytes;
    out.checkpoint = directory / step_name(0);
    return out;
}

}  // namespace quadrille

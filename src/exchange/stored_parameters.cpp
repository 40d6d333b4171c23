#include "exchange/stored_parameters.hpp"

#include "checkpoint/checksums.hpp"
#include "checkpoint/steps.hpp"
#include "checkpoint/stored_file.hpp"
#include "config/load.hpp"

#include <fmt/ranges.h>

#include <set>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

const std::string prefix = "/parameters/";

fs::path step_at(const fs::path& path) {
    std::error_code unreadable;
    if (!fs::exists(path, unreadable)) throw Error(Exit::refused, fmt::format("export: {} does not exist", path.string()));
    if (step_of(path) >= 0 || fs::exists(path / "checkpoint.h5", unreadable)) return path;
    const std::vector<fs::path> steps = steps_in(path);
    if (steps.empty()) throw Error(Exit::refused, "export: " + no_checkpoint_in(path));
    return steps[0];
}

// The checkpoint without moments; its parameters' checksums are right.
Checkpoint opened(const fs::path& folder) {
    Checkpoint c = read_structures(folder);
    const PlainFile file(c.file(), PlainFile::Open::read);
    std::erase_if(c.tensors, [](const StoredTensor& t) { return !t.path.starts_with(prefix); });
    std::vector<Sums> sums;
    for (const StoredTensor& t : c.tensors) sums.push_back(sums_of(file, t, [] {}));
    if (const std::string damaged = damage(c, sums); !damaged.empty()) throw Error(Exit::io_failed, damaged);
    return c;
}

}  // namespace

StoredParameters::StoredParameters(const fs::path& path)
    : checkpoint_(opened(step_at(path))), config_(parse_resolved_model(checkpoint_.point.config_yaml)),
      file_(checkpoint_.file(), PlainFile::Open::read) {
    for (std::int64_t layer = 0; config_.lora.on() && layer < config_.model.num_layers; ++layer)
        for (const LinearMatrix& m : linear_matrices(config_.model, layer))
            if (is_target(config_.lora, m.name)) adapted_[m.name + ".weight"] = m;
}

void StoredParameters::check(const std::vector<TheirTensor>& layout) const {
    std::set<std::string> due;
    const auto want = [&](const std::string& name, std::int64_t elements, const std::string& shape) {
        const StoredTensor* found = checkpoint_.find(prefix + name);
        if (!found || found->bytes != elements * static_cast<std::int64_t>(sizeof(float)))
            throw Error(Exit::io_failed, fmt::format("{}: {} is {}, and by the checkpoint's own input it is {}", checkpoint_.file().string(), name,
                                                     found ? fmt::format("[{}]", fmt::join(found->shape, ", ")) : "missing", shape));
        due.insert(found->path);
    };
    for (const TheirTensor& t : layout)
        for (const OurPart& p : t.parts) want(p.name, p.out * p.in, fmt::format("[{}]", fmt::join(p.shape, ", ")));
    const std::int64_t rank = config_.lora.rank;
    for (const auto& [weight, m] : adapted_) {
        want(m.name + ".lora_a", rank * m.in, fmt::format("{} x {}", rank, m.in));
        want(m.name + ".lora_b", m.out * rank, fmt::format("{} x {}", m.out, rank));
    }
    for (const StoredTensor& t : checkpoint_.tensors)
        if (!due.contains(t.path))
            throw Error(Exit::io_failed, fmt::format("{}: {} is no parameter of its model", checkpoint_.file().string(), t.path));
}

const StoredTensor& StoredParameters::stored(const std::string& name) const {
    const StoredTensor* found = checkpoint_.find(prefix + name);
    require(found != nullptr, "exchange: a parameter that has not been looked for");
    return *found;
}

void StoredParameters::read(const StoredTensor& t, std::int64_t first, std::span<float> into) const {
    file_.read(t.offset + first * static_cast<std::int64_t>(sizeof(float)), std::as_writable_bytes(into));
}

void StoredParameters::read_rows(const OurPart& part, std::int64_t first, std::span<float> rows) {
    read(stored(part.name), first * part.in, rows);
    if (const auto at = adapted_.find(part.name); at != adapted_.end()) add_adapter(at->second, first, rows);
}

void StoredParameters::add_adapter(const LinearMatrix& m, std::int64_t first, std::span<float> rows) {
    const std::int64_t rank = config_.lora.rank, count = std::ssize(rows) / m.in;
    if (name_of_a_ != m.name) {
        name_of_a_ = m.name;
        a_.resize(static_cast<std::size_t>(rank * m.in));
        read(stored(m.name + ".lora_a"), 0, a_);
    }
    std::vector<float> b(static_cast<std::size_t>(count * rank));
    read(stored(m.name + ".lora_b"), first * rank, b);
    const double factor = config_.lora.alpha / static_cast<double>(rank);
    std::vector<double> sums(static_cast<std::size_t>(m.in));
    for (std::int64_t row = 0; row < count; ++row) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t k = 0; k < rank; ++k) {
            const double by = factor * static_cast<double>(b[static_cast<std::size_t>(row * rank + k)]);
            const float* const of_k = a_.data() + k * m.in;
            for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += by * static_cast<double>(of_k[c]);
        }
        float* const w = rows.data() + row * m.in;
        for (std::size_t c = 0; c < sums.size(); ++c) w[c] = static_cast<float>(static_cast<double>(w[c]) + sums[c]);
    }
}

}  // namespace quadrille

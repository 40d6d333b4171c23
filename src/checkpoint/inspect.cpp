#include "checkpoint/inspect.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "checkpoint/checksums.hpp"
#include "checkpoint/stored_file.hpp"
#include "record/report.hpp"

#include <fmt/ranges.h>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

std::string of_checkpoint(const Checkpoint& c) {
    std::int64_t parameters = 0, bytes = 0;
    for (const StoredTensor& t : c.tensors) {
        bytes += t.bytes;
        if (t.path.starts_with("/parameters/")) parameters += t.bytes / static_cast<std::int64_t>(sizeof(float));
    }
    const std::string& version = c.point.version;
    std::string text = fmt::format("{}: {}, written by quadrille {} ({})\n", c.file().string(), checkpoint_schema, version, c.point.git_commit);
    text += model_line(c.point.config_yaml);
    text += fmt::format("  parameters {} ({})\n", parameters, format_count(static_cast<double>(parameters)));
    text += fmt::format("  step       {}, {} updates, {} sequences, seed {}", c.point.step, c.point.updates, c.point.sequences, c.point.seed);
    if (c.point.loss_scale != 1) text += fmt::format(", loss scale {} for {} good steps", c.point.loss_scale, c.point.good_steps);
    if (c.point.follows_a_step) text += fmt::format("\n  stale      gradients of step {}, for the update of step {}", c.point.step, c.point.step + 1);
    text += fmt::format("\n  size       {} in {}\n", format_bytes(bytes), format_number_of(std::ssize(c.tensors), "dataset"));
    text += fmt::format("  checksum   {:016x}, of all datasets: verified\n\n", c.checksum);
    std::vector<std::vector<std::string>> rows = {{"dataset", "shape", "bytes", "xxh3_64"}};
    for (const StoredTensor& t : c.tensors)
        rows.push_back({t.path, fmt::format("[{}]", fmt::join(t.shape, ", ")), fmt::format("{}", t.bytes), fmt::format("{:016x}", t.checksum)});
    return text + format_table(rows);
}

std::string of_folder(const fs::path& folder) {
    const Checkpoint c = read_structures(folder);
    const PlainFile file(c.file(), PlainFile::Open::read);
    std::vector<Sums> sums;
    for (const StoredTensor& t : c.tensors) sums.push_back(sums_of(file, t, [] {}));
    if (const std::string damaged = damage(c, sums); !damaged.empty()) throw Error(Exit::io_failed, damaged);
    return of_checkpoint(c);
}

}  // namespace

bool is_checkpoint(const fs::path& path) {
    std::error_code unreadable;
    return path.filename() == "checkpoint.h5" || step_of(path) >= 0 || fs::exists(path / "checkpoint.h5", unreadable) || !steps_in(path).empty();
}

std::string inspect_checkpoint(const fs::path& path) {
    std::error_code unreadable;
    if (!fs::exists(path, unreadable)) throw Error(Exit::refused, fmt::format("inspect: {} does not exist", path.string()));
    if (path.filename() == "checkpoint.h5") return of_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
    const bool one_step = step_of(path) >= 0 || fs::exists(path / "checkpoint.h5", unreadable);
    const std::vector<fs::path> steps = one_step ? std::vector<fs::path>{path} : steps_in(path);
    std::string text = of_folder(steps[0]), others;
    for (std::size_t i = 1; i < steps.size(); ++i) others += fmt::format("{}{}", i > 1 ? ", " : "", steps[i].filename().string());
    return others.empty() ? text : text + fmt::format("\nolder steps here: {}\n", others);
}

}  // namespace quadrille

#include "checkpoint/checkpoint.hpp"

#include "base/error.hpp"
#include "checkpoint/checksums.hpp"
#include "checkpoint/state_tensors.hpp"
#include "checkpoint/stored_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

// ---- a checkpoint as text, from rank 0 to the others, who need not all read the structures ----
class Packer {
  public:
    template <class T>
    void number(T x) { bytes.append(reinterpret_cast<const char*>(&x), sizeof x); }
    void text(const std::string& t) {
        number(t.size());
        bytes += t;
    }
    std::string bytes;
};

class Unpacker {
  public:
    explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
    template <class T>
    void number(T& x) {
        std::memcpy(&x, bytes_.data() + at_, sizeof x);
        at_ += sizeof x;
    }
    void text(std::string& t) {
        std::size_t n = 0;
        number(n);
        t = bytes_.substr(at_, n);
        at_ += n;
    }

  private:
    const std::string& bytes_;
    std::size_t at_ = 0;
};

std::string packed(const Checkpoint& c) {
    Packer p;
    p.text(c.folder.string());
    for (const std::int64_t n : {c.point.step, c.point.updates, c.point.sequences, c.point.good_steps}) p.number(n);
    p.number(c.point.seed);
    p.number(c.point.loss_scale);
    p.number(c.point.follows_a_step);
    for (const std::string* t : {&c.point.config_yaml, &c.point.version, &c.point.git_commit}) p.text(*t);
    p.number(c.checksum);
    p.number(c.tensors.size());
    for (const StoredTensor& t : c.tensors) {
        p.text(t.path);
        p.number(t.shape.size());
        for (const std::int64_t n : t.shape) p.number(n);
        p.number(t.offset);
        p.number(t.bytes);
        p.number(t.checksum);
    }
    return p.bytes;
}

Checkpoint unpacked(const std::string& bytes) {
    Unpacker u(bytes);
    Checkpoint c;
    std::string folder;
    u.text(folder);
    c.folder = folder;
    for (std::int64_t* n : {&c.point.step, &c.point.updates, &c.point.sequences, &c.point.good_steps}) u.number(*n);
    u.number(c.point.seed);
    u.number(c.point.loss_scale);
    u.number(c.point.follows_a_step);
    for (std::string* t : {&c.point.config_yaml, &c.point.version, &c.point.git_commit}) u.text(*t);
    u.number(c.checksum);
    std::size_t n = 0;
    u.number(n);
    c.tensors.resize(n);
    for (StoredTensor& t : c.tensors) {
        u.text(t.path);
        u.number(n);
        t.shape.resize(n);
        for (std::int64_t& s : t.shape) u.number(s);
        u.number(t.offset);
        u.number(t.bytes);
        u.number(t.checksum);
    }
    return c;
}

// ---- finding ----
// Each rank must see what rank 0 sees. Collective.
void require_visible(const Collectives& ranks, const fs::path& path) {
    together(ranks, [&] {
        std::error_code unreadable;
        if (!fs::exists(path, unreadable))
            throw Error(Exit::refused, fmt::format("checkpoint: rank {} does not see {}, which rank 0 does: it must be on a file system of all nodes",
                                                   ranks.rank(), path.string()));
    });
}

// The step in `folder`, read to its end by all ranks together; none where it is damaged, and then `why`. Throws SharedError where it cannot be read.
std::optional<Checkpoint> read_whole(const Collectives& ranks, const fs::path& folder, std::string& why) {
    require_visible(ranks, folder);
    constexpr char whole = '+', not_whole = '-';
    const std::string said = on_first_rank(ranks, [&] {
        try {
            return whole + packed(read_structures(folder));
        } catch (const Damaged& e) {
            return not_whole + std::string(e.what());
        }
    });
    if (said[0] == not_whole) {
        why = said.substr(1);
        return {};
    }
    Checkpoint c = unpacked(said.substr(1));
    require_visible(ranks, c.file());
    why = damage(c, sums_of(ranks, c.file(), c.tensors));
    return why.empty() ? std::optional(std::move(c)) : std::nullopt;
}

// The folder of one checkpoint that checkpoint.resume names: by a step's name, or any other of one that holds a checkpoint's file, such as
// former-step-00000100; a link is followed, so that what stands in its place later is another. Empty: it names a folder of steps.
fs::path folder_meant(const fs::path& path) {
    std::error_code unreadable;
    if (!fs::exists(path, unreadable)) throw Error(Exit::refused, fmt::format("checkpoint.resume: {} does not exist", path.string()));
    if (!fs::is_directory(path, unreadable)) throw Error(Exit::refused, fmt::format("checkpoint.resume: {} is not a folder", path.string()));
    if (step_of(path) >= 0) return path;
    if (fs::exists(path / "checkpoint.h5", unreadable)) return fs::canonical(path, unreadable);
    if (steps_in(path).empty()) throw Error(Exit::refused, "checkpoint.resume: " + no_checkpoint_in(path));
    return {};
}

// The steps in a directory, as rank 0 sees them, on all ranks. Collective.
std::vector<fs::path> steps_seen(const Collectives& ranks, const fs::path& directory) {
    const std::string text = on_first_rank(ranks, [&] {
        Packer p;
        for (const fs::path& path : steps_in(directory)) p.text(path.string());
        return p.bytes;
    });
    std::vector<fs::path> paths;
    Unpacker u(text);
    for (std::size_t read = 0; read < text.size(); read += sizeof(std::size_t) + paths.back().string().size()) {
        std::string path;
        u.text(path);
        paths.emplace_back(path);
    }
    return paths;
}

}  // namespace

const StoredTensor* Checkpoint::find(const std::string& path) const {
    const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const StoredTensor& t) { return t.path == path; });
    return it == tensors.end() ? nullptr : &*it;
}

Found find_newest(const Collectives& ranks, const fs::path& directory) {
    Found found;
    for (const fs::path& folder : steps_seen(ranks, directory)) {
        std::string why;
        found.checkpoint = read_whole(ranks, folder, why);
        if (found.checkpoint) break;
        found.passed_over.push_back(why);
    }
    return found;
}

Found open_checkpoint(const Collectives& ranks, const fs::path& path) {
    const fs::path folder = on_first_rank(ranks, [&] { return folder_meant(path).string(); });
    require_visible(ranks, path);
    if (!folder.empty()) {
        std::string why;
        Found one{read_whole(ranks, folder, why), {}};
        if (!one.checkpoint) throw SharedError(Exit::io_failed, why);
        return one;
    }
    Found found = find_newest(ranks, path);
    if (found.checkpoint) return found;
    throw SharedError(Exit::io_failed, fmt::format("checkpoint.resume: {} holds no whole checkpoint\n{}", path.string(),
                                                   fmt::join(found.passed_over, "\n")));
}

void check_model(const Checkpoint& checkpoint, const Program& training) {
    const std::string group = dataset_path("", StateKind::master), file = checkpoint.file().string();
    std::unordered_map<std::string_view, const StoredTensor*> stored;
    for (const StoredTensor& t : checkpoint.tensors)
        if (t.path.starts_with(group)) stored[std::string_view(t.path).substr(group.size())] = &t;
    for (const Parameter& p : training.parameters) {
        const auto it = stored.find(p.name);
        if (it == stored.end() && p.adapter) continue;
        if (it == stored.end()) throw Error(Exit::refused, fmt::format("{} is of another model: it has no parameter {}", file, p.name));
        const std::vector<std::int64_t>& shape = it->second->shape;
        if (shape != p.shape)
            throw Error(Exit::refused, fmt::format("{} is of another model: its {} is [{}], and this model's [{}]", file, p.name,
                                                   fmt::join(shape, ", "), fmt::join(p.shape, ", ")));
        stored.erase(it);
    }
    for (const StoredTensor& t : checkpoint.tensors) {
        if (!t.path.starts_with(group) || t.path.find(".lora") != std::string::npos) continue;
        const std::string_view name = std::string_view(t.path).substr(group.size());
        if (stored.contains(name)) throw Error(Exit::refused, fmt::format("{} is of another model: this model has no parameter {}", file, name));
    }
}

}  // namespace quadrille

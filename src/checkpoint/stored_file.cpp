#include "checkpoint/stored_file.hpp"

#include "base/error.hpp"
#include "checkpoint/plain_file.hpp"
#include "checkpoint/running_hash.hpp"
#include "record/hdf5.hpp"
#include "record/version.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <set>

namespace quadrille {
namespace {

namespace fs = std::filesystem;
using namespace hdf5;

constexpr hsize_t aligned_from = 64 << 10, file_alignment = 4096;  // bytes: datasets from this size on begin at a multiple of the latter
constexpr const char* checksum_name = "xxh3_64";
constexpr std::string_view mark = "qdrl-ck1";

static_assert(std::endian::native == std::endian::little);
struct Line { std::uint64_t offset, bytes, checksum; };
struct Footer { std::uint64_t structure_bytes, structures, lines, seal; std::array<char, 8> mark; };

[[noreturn]] void damaged(const fs::path& file, const std::string& why) {
    throw Damaged(Exit::io_failed, fmt::format("{}: {}", file.string(), why));
}

// ---- the seal ----
// XXH3-64 of the file's bytes up to `end` that are in no line's range; the lines ascend.
std::uint64_t hash_of_structures(const PlainFile& file, const std::vector<Line>& lines, std::int64_t end) {
    RunningHash hash;
    std::vector<std::byte> buffer(1 << 20);
    const auto take = [&](std::int64_t from, std::int64_t to) {
        while (from < to) {
            const std::span part = std::span(buffer).first(static_cast<std::size_t>(std::min<std::int64_t>(to - from, std::ssize(buffer))));
            file.read(from, part);
            hash.add(part);
            from += std::ssize(part);
        }
    };
    std::int64_t at = 0;
    for (const Line& line : lines) {
        take(at, static_cast<std::int64_t>(line.offset));
        at = static_cast<std::int64_t>(line.offset + line.bytes);
    }
    take(at, end);
    return hash.value();
}

std::vector<std::byte> seal_bytes(const std::vector<Line>& lines, Footer footer) {
    std::vector<std::byte> bytes(lines.size() * sizeof(Line) + sizeof(Footer));
    const std::size_t table = lines.size() * sizeof(Line);
    if (table > 0) std::memcpy(bytes.data(), lines.data(), table);
    std::memcpy(bytes.data() + table, &footer, sizeof footer);
    footer.seal = XXH3_64bits(bytes.data(), table + offsetof(Footer, seal));
    std::memcpy(footer.mark.data(), mark.data(), mark.size());
    std::memcpy(bytes.data() + table, &footer, sizeof footer);
    return bytes;
}

// The lines of a file whose structures are whole; throws otherwise.
std::vector<Line> checked_lines(const PlainFile& file, const fs::path& name) {
    const std::int64_t size = file.size();
    if (size == 0) damaged(name, "is empty");
    Footer footer;
    const std::span footer_bytes = std::as_writable_bytes(std::span(&footer, 1));
    if (size >= std::ssize(footer_bytes)) file.read(size - std::ssize(footer_bytes), footer_bytes);
    if (size < std::ssize(footer_bytes) || std::memcmp(footer.mark.data(), mark.data(), mark.size()) != 0)
        damaged(name, fmt::format("does not end with the seal of a checkpoint: its {} bytes are truncated, or another file", size));
    const auto room = static_cast<std::uint64_t>(size) - sizeof(Footer);
    if (footer.lines > room / sizeof(Line) || footer.structure_bytes != room - footer.lines * sizeof(Line))
        damaged(name, fmt::format("has {} bytes, and its seal speaks of others: truncated, or damaged", size));
    std::vector<Line> lines(footer.lines);
    if (!lines.empty()) file.read(static_cast<std::int64_t>(footer.structure_bytes), std::as_writable_bytes(std::span(lines)));
    if (const auto again = seal_bytes(lines, footer); std::memcmp(again.data() + again.size() - sizeof footer, &footer, sizeof footer) != 0)
        damaged(name, "is damaged: the checksum of its seal fails");
    std::uint64_t at = 0;
    for (const Line& line : lines) {
        if (line.offset < at || line.bytes > footer.structure_bytes || line.offset > footer.structure_bytes - line.bytes)
            damaged(name, "is damaged: its seal names bytes that it does not have");
        at = line.offset + line.bytes;
    }
    if (hash_of_structures(file, lines, static_cast<std::int64_t>(footer.structure_bytes)) != footer.structures)
        damaged(name, "is damaged: the checksum of its structures fails");
    return lines;
}

// ---- HDF5 ----
Hdf5Id access_properties() {
    Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_alignment(access, aligned_from, file_alignment);
    return access;
}

void make_groups(hid_t file, const std::vector<StoredTensor>& tensors, const std::string& name) {
    std::set<std::string> groups = {"/parameters", "/config"};
    for (const StoredTensor& t : tensors)
        for (std::size_t slash = t.path.find('/', 1); slash != std::string::npos; slash = t.path.find('/', slash + 1))
            groups.insert(t.path.substr(0, slash));
    for (const std::string& group : groups)
        own(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, name, group + " cannot be made");
}

void make_dataset(hid_t file, StoredTensor& t, const std::string& name) {
    const Hdf5Id layout = without_times(), space = space_of({t.shape.begin(), t.shape.end()});
    H5Pset_alloc_time(layout, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(layout, H5D_FILL_TIME_NEVER);
    const Hdf5Id made = own(H5Dcreate2(file, t.path.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, layout, H5P_DEFAULT), H5Dclose, name,
                            t.path + " cannot be made");
    write_attribute(made, checksum_name, std::uint64_t{0}, name);
    t.offset = static_cast<std::int64_t>(H5Dget_offset(made));
    t.bytes = static_cast<std::int64_t>(H5Dget_storage_size(made));
}

void set_checksum(hid_t file, const std::string& path, std::uint64_t checksum, const std::string& name) {
    // Through its object: what HDF5 1.10 writes to an attribute that was opened by the object's name is lost.
    const Hdf5Id object = own(H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose, name, path + " is missing");
    const Hdf5Id attribute = own(H5Aopen(object, checksum_name, H5P_DEFAULT), H5Aclose, name, path + " has no checksum");
    check(H5Awrite(attribute, H5T_NATIVE_UINT64, &checksum), name, path + ": the checksum cannot be written");
}

void write_point(hid_t file, const TrainingPoint& point, const std::string& name) {
    write_attribute(file, "schema", std::string(checkpoint_schema), name);
    write_attribute(file, "version", std::string(version()), name);
    write_attribute(file, "git_commit", std::string(git_commit()), name);
    write_attribute(file, "step", point.step, name);
    write_attribute(file, "updates", point.updates, name);
    write_attribute(file, "sequences", point.sequences, name);
    write_attribute(file, "seed", point.seed, name);
    write_attribute(file, "loss_scale", point.loss_scale, name);
    write_attribute(file, "good_steps", point.good_steps, name);
    write_attribute(file, "follows_a_step", static_cast<std::int64_t>(point.follows_a_step), name);
    write_attribute(file, checksum_name, std::uint64_t{0}, name);
    const Hdf5Id config = own(H5Gopen2(file, "/config", H5P_DEFAULT), H5Gclose, name, "/config is missing");
    write_attribute(config, "yaml", point.config_yaml, name);
}

TrainingPoint read_point(hid_t file, const std::string& name) {
    const std::string schema = text_attribute(file, "schema", name);
    if (schema != checkpoint_schema)
        throw Error(Exit::io_failed, fmt::format("{}: its schema is {} and this program reads {}", name, schema, checkpoint_schema));
    TrainingPoint point;
    point.version = text_attribute(file, "version", name);
    point.git_commit = text_attribute(file, "git_commit", name);
    point.step = int_attribute(file, "step", name);
    point.updates = int_attribute(file, "updates", name);
    point.sequences = int_attribute(file, "sequences", name);
    point.seed = unsigned_attribute(file, "seed", name);
    point.loss_scale = double_attribute(file, "loss_scale", name);
    point.good_steps = int_attribute(file, "good_steps", name);
    if (H5Aexists(file, "follows_a_step") > 0) point.follows_a_step = int_attribute(file, "follows_a_step", name) != 0;  // older ones have none
    const Hdf5Id config = own(H5Gopen2(file, "/config", H5P_DEFAULT), H5Gclose, name, "/config is missing");
    point.config_yaml = text_attribute(config, "yaml", name);
    return point;
}

// Whether the dataset's bytes are its values as a checkpoint has them: fp32, row-major, without gaps.
bool is_plain(hid_t dataset, const StoredTensor& t) {
    const Hdf5Id type(H5Dget_type(dataset), H5Tclose);
    std::int64_t bytes = sizeof(float);
    bool fits = H5Tequal(type, H5T_IEEE_F32LE) > 0;
    for (const std::int64_t n : t.shape) fits = !__builtin_mul_overflow(bytes, n, &bytes) && fits;
    return fits && bytes == t.bytes;
}

struct Walk { std::vector<StoredTensor>* found; std::string failure, foreign; };

// Called by C, so nothing may be thrown through it.
herr_t visit_object(hid_t group, const char* path, const H5O_info_t* info, void* data) {
    Walk& walk = *static_cast<Walk*>(data);
    if (info->type != H5O_TYPE_DATASET) return 0;
    try {
        const Hdf5Id dataset = own(H5Dopen2(group, path, H5P_DEFAULT), H5Dclose, path, "cannot be opened");
        const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
        std::array<hsize_t, H5S_MAX_RANK> dims{};
        const int rank = H5Sget_simple_extent_dims(space, dims.data(), nullptr);
        StoredTensor& t = walk.found->emplace_back();
        t.path = std::string("/") + path;
        t.shape.assign(dims.begin(), dims.begin() + std::max(rank, 0));
        t.offset = static_cast<std::int64_t>(H5Dget_offset(dataset));
        t.bytes = static_cast<std::int64_t>(H5Dget_storage_size(dataset));
        if (!is_plain(dataset, t)) walk.foreign = t.path;
    } catch (const std::exception& e) {
        walk.failure = e.what();
        return -1;
    }
    return 0;
}

std::vector<StoredTensor> read_tensors(hid_t file, const std::string& name) {
    std::vector<StoredTensor> found;
    Walk walk{&found, "", ""};
    const herr_t status = H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, visit_object, &walk);
    if (!walk.failure.empty()) throw Error(Exit::io_failed, fmt::format("{}: {}", name, walk.failure));
    check(status, name, "its datasets cannot be listed");
    if (!walk.foreign.empty()) damaged(name, fmt::format("{} is not fp32, row-major and without gaps, as this program stores tensors", walk.foreign));
    std::sort(found.begin(), found.end(), [](const StoredTensor& a, const StoredTensor& b) { return a.offset < b.offset; });
    return found;
}

// More than the file will take.
std::int64_t room_for(const TrainingPoint& point, const std::vector<StoredTensor>& tensors) {
    constexpr std::int64_t of_file = 256 << 10, of_tensor = 8 << 10;  // structures, gaps and the seal
    std::int64_t bytes = of_file + 2 * std::ssize(point.config_yaml);
    for (const StoredTensor& t : tensors) {
        std::int64_t values = sizeof(float);
        for (const std::int64_t n : t.shape) values *= n;
        bytes += values + of_tensor;
    }
    return bytes;
}

}  // namespace

std::uint64_t checksum_of_all(const std::vector<StoredTensor>& tensors) {
    std::map<std::string_view, std::uint64_t> by_path;
    for (const StoredTensor& t : tensors) by_path[t.path] = t.checksum;
    std::vector<std::uint64_t> all;
    for (const auto& [path, checksum] : by_path) all.push_back(checksum);
    return XXH3_64bits(all.data(), all.size() * sizeof(std::uint64_t));
}

void make_file(const fs::path& file, const TrainingPoint& point, std::vector<StoredTensor>& tensors) {
    const std::string name = file.string();
    const std::int64_t room = room_for(point, tensors);
    // A full disk is found here, where it is an errno: HDF5 does not survive not being able to write its structures.
    PlainFile plain(file, PlainFile::Open::make);
    plain.try_size(room);
    plain.reserve(room);
    const QuietHdf5 quiet;
    const Hdf5Id access = access_properties();
    Hdf5Id made = own(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, name, "cannot be made");
    plain.reserve(room);  // making it has given the space back
    make_groups(made, tensors, name);
    for (StoredTensor& t : tensors) make_dataset(made, t, name);
    write_point(made, point, name);
    check(made.close(), name, "cannot be closed");
}

void seal_file(const fs::path& file, const std::vector<StoredTensor>& tensors) {
    const std::string name = file.string();
    {
        const QuietHdf5 quiet;
        Hdf5Id open = own(H5Fopen(name.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, name, "cannot be opened");
        for (const StoredTensor& t : tensors) set_checksum(open, t.path, t.checksum, name);
        set_checksum(open, "/", checksum_of_all(tensors), name);
        check(open.close(), name, "cannot be closed");
    }
    std::vector<Line> lines;
    for (const StoredTensor& t : tensors)
        lines.push_back({static_cast<std::uint64_t>(t.offset), static_cast<std::uint64_t>(t.bytes), t.checksum});
    std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.offset < b.offset; });
    PlainFile plain(file, PlainFile::Open::write);
    const std::int64_t end = plain.size();
    const Footer footer{static_cast<std::uint64_t>(end), hash_of_structures(plain, lines, end), lines.size(), 0, {}};
    plain.write(end, seal_bytes(lines, footer));
    plain.give_back();
    plain.sync();
}

Checkpoint read_structures(const fs::path& folder) {
    Checkpoint found;
    found.folder = folder;
    const fs::path file = found.file();
    const std::vector<Line> lines = checked_lines(PlainFile(file, PlainFile::Open::read), file);
    const QuietHdf5 quiet;
    const std::string name = file.string();
    const Hdf5Id open = own(H5Fopen(name.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, name, "is not what HDF5 takes");
    found.point = read_point(open, name);
    found.tensors = read_tensors(open, name);
    if (found.tensors.size() != lines.size())
        damaged(file, fmt::format("has {} datasets, and its seal {}", found.tensors.size(), lines.size()));
    for (std::size_t i = 0; i < lines.size(); ++i) {
        StoredTensor& t = found.tensors[i];
        if (static_cast<std::uint64_t>(t.offset) != lines[i].offset || static_cast<std::uint64_t>(t.bytes) != lines[i].bytes)
            damaged(file, fmt::format("{} is not where its seal has it", t.path));
        t.checksum = lines[i].checksum;
    }
    found.checksum = checksum_of_all(found.tensors);
    return found;
}

}  // namespace quadrille

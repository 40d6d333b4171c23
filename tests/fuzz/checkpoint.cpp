// The file of a checkpoint: damage of any kind is told, and what another program has sealed is read or refused. The tensors' values, whose checksums
// are compared with all ranks at work, are not looked at here.
//
// An input is a byte that says which, and changes to a small checkpoint. Even: changes to its bytes (`damage_bytes`); whatever differs from what was
// saved is refused, except behind a checksum made anew (`reseal`), which is made over HDF5's structures only while they are as HDF5 has left them.
// Odd: changes through HDF5 (foreign_hdf5.hpp), which are then sealed as a checkpoint is; then changes to the seal.
#include "fuzz/foreign_hdf5.hpp"

#include "checkpoint/stored_file.hpp"
#include "record/hdf5.hpp"

#include <xxhash.h>

using namespace quadrille;
using namespace quadrille::fuzz;

namespace {

namespace fs = std::filesystem;

// The seal, as checkpoint/stored_file.hpp describes it: lines of offset, bytes and checksum, then five words.
constexpr std::size_t word = 8, line_bytes = 3 * word, footer_bytes = 5 * word;
enum Footer : std::size_t { structure_bytes, structures, lines, seal, mark };

struct Base {
    TemporaryDirectory directory;
    fs::path folder = directory.path() / "step-00000007";
    std::string bytes;
    std::vector<StoredTensor> tensors = {{"/parameters/a.weight", {2, 3}}, {"/parameters/b", {4}}, {"/optimizer/m/a.weight", {2, 3}}};

    Base() {
        fs::create_directory(folder);
        TrainingPoint point;
        point.step = 7;
        point.seed = 3;
        point.config_yaml = "model:\n  num_layers: 2\n";
        make_file(file(), point, tensors);
        bytes = contents(file());
        for (StoredTensor& t : tensors) {
            for (std::int64_t i = 0; i < t.bytes; ++i) bytes[static_cast<std::size_t>(t.offset + i)] = static_cast<char>(i);
            t.checksum = XXH3_64bits(bytes.data() + t.offset, static_cast<std::size_t>(t.bytes));
        }
        write(file(), bytes);
        seal_file(file(), tensors);
        bytes = contents(file());
    }
    fs::path file() const { return folder / "checkpoint.h5"; }
};

std::uint64_t word_at(const std::string& bytes, std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}
void set_word(std::string& bytes, std::size_t at, std::uint64_t value) {
    if (at + sizeof value <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The bytes before `end` that are in no line's range, as far as there are such; the lines stand behind `end`.
std::string outside_lines(const std::string& bytes, std::size_t end, std::size_t count) {
    std::string rest;
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t offset = word_at(bytes, end + i * line_bytes), size = word_at(bytes, end + i * line_bytes + word);
        if (offset < at || size > end || offset > end - size) return {};
        rest += bytes.substr(at, offset - at);
        at = offset + size;
    }
    return rest + bytes.substr(at, end - at);
}

// Makes the checksum of the seal hold for what it says now, and that of the structures if they are `sound`.
void reseal(std::string& bytes, const std::string& sound) {
    if (bytes.size() < footer_bytes) return;
    const std::size_t footer = bytes.size() - footer_bytes, count = word_at(bytes, footer + lines * word);
    if (count > footer / line_bytes) return;
    const std::size_t end = footer - count * line_bytes;
    set_word(bytes, footer + structure_bytes * word, end);
    if (end == sound.size() && bytes.compare(0, end, sound) == 0) {
        const std::string rest = outside_lines(bytes, end, count);
        set_word(bytes, footer + structures * word, XXH3_64bits(rest.data(), rest.size()));
    }
    set_word(bytes, footer + seal * word, XXH3_64bits(bytes.data() + end, count * line_bytes + seal * word));
}

struct Damage {
    std::string bytes;
    bool resealed = false;
};

// Up to 16 changes: a byte, a word of the footer, one of the lines, the length, bytes at the end, a checksum made anew. Behind the last, lines may
// call HDF5's structures a tensor's values, so from then on those stay as they are.
Damage damage_bytes(std::string bytes, const std::string& sound, Bytes& changes) {
    Damage d{std::move(bytes), false};
    constexpr int most = 16;
    for (int i = 0; i < most && !changes.empty(); ++i) {
        const std::size_t size = d.bytes.size(), kind = changes.byte() % 6;
        if (kind == 0 && size > 0) {
            const std::size_t at = changes.below(size);
            if (!d.resealed || at >= sound.size()) d.bytes[at] = static_cast<char>(changes.byte());
        }
        if (kind == 1 && size >= footer_bytes) set_word(d.bytes, size - footer_bytes + changes.below(5) * word, changes.number<std::uint64_t>());
        if (kind == 2 && size >= footer_bytes + 9 * word)
            set_word(d.bytes, size - footer_bytes - (1 + changes.below(9)) * word, changes.number<std::uint64_t>());
        if (kind == 3) d.bytes.resize(changes.below(size + 1));
        if (kind == 4) d.bytes.append(changes.below(100), static_cast<char>(changes.byte()));
        if (kind == 5) reseal(d.bytes, sound), d.resealed = true;
    }
    return d;
}

struct Found {
    std::string path;
    std::uint64_t offset, bytes;
};

herr_t take_dataset(hid_t group, const char* path, const H5O_info_t* info, void* found) {
    if (info->type != H5O_TYPE_DATASET) return 0;
    const Hdf5Id dataset(H5Dopen2(group, path, H5P_DEFAULT), H5Dclose);
    static_cast<std::vector<Found>*>(found)->push_back({path, H5Dget_offset(dataset), H5Dget_storage_size(dataset)});
    return 0;
}

// The file's bytes with a seal that holds, of all datasets that have a place in it.
std::string sealed_as_checkpoint(const fs::path& file) {
    std::vector<Found> found;
    {
        const QuietHdf5 quiet;
        const Hdf5Id open(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
        H5Ovisit(open, H5_INDEX_NAME, H5_ITER_INC, take_dataset, &found);
    }
    std::string bytes = contents(file);
    const std::size_t end = bytes.size();
    std::erase_if(found, [&](const Found& f) { return f.bytes > end || f.offset > end - f.bytes; });
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.offset < b.offset; });
    const auto add = [&](std::uint64_t value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
    for (const Found& f : found) {
        add(f.offset);
        add(f.bytes);
        add(XXH3_64bits(bytes.data() + f.offset, f.bytes));
    }
    for (const std::uint64_t value : {std::uint64_t{end}, std::uint64_t{0}, std::uint64_t{found.size()}, std::uint64_t{0}}) add(value);
    bytes += "qdrl-ck1";
    reseal(bytes, bytes.substr(0, end));
    return bytes;
}

bool reads(const Base& base, const std::string& bytes) {
    write(base.file(), bytes);
    return takes([&] {
        for (const StoredTensor& t : read_structures(base.folder).tensors) {
            expect(t.offset >= 0 && t.bytes >= 0 && t.bytes <= std::ssize(bytes) - t.offset, "a tensor lies in its file", t.path);
            std::int64_t values = 1;
            for (const std::int64_t n : t.shape) values *= n;
            expect(values * static_cast<std::int64_t>(sizeof(float)) == t.bytes, "a dataset is fp32, row-major, without gaps", t.path);
        }
    });
}

// The bytes with those of the base's tensors in place of whatever is there.
std::string with_values_of(const Base& base, std::string bytes) {
    for (const StoredTensor& t : base.tensors) {
        const auto begin = static_cast<std::size_t>(t.offset), count = static_cast<std::size_t>(t.bytes);
        if (begin + count <= bytes.size()) bytes.replace(begin, count, base.bytes, begin, count);
    }
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Base base;
    Bytes input(data, size);
    if (input.byte() % 2 == 0) {
        const std::string sound = base.bytes.substr(0, word_at(base.bytes, base.bytes.size() - footer_bytes));
        const Damage damage = damage_bytes(base.bytes, sound, input);
        const bool taken = reads(base, damage.bytes), as_saved = with_values_of(base, damage.bytes) == base.bytes;
        expect(taken || !as_saved, "what was saved is whole");
        expect(!taken || as_saved || damage.resealed, "what is not what was saved is refused");
        return 0;
    }
    Bytes edits = [&] {
        const std::size_t count = input.byte();
        const std::string_view text = input.text(count);
        return Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    }();
    write(base.file(), base.bytes);
    edit_hdf5(base.file(), edits);
    const std::string bytes = sealed_as_checkpoint(base.file());
    reads(base, damage_bytes(bytes, bytes.substr(0, word_at(bytes, bytes.size() - footer_bytes)), input).bytes);
    return 0;
}

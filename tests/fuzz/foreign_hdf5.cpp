#include "fuzz/foreign_hdf5.hpp"

#include "record/hdf5.hpp"

#include <array>

namespace quadrille::fuzz {
namespace {

enum class Edit : std::uint8_t { remove, rename, link, attribute, dataset, values };

// Objects and attributes that the file has, by number.
struct Names {
    std::vector<std::string> objects = {"/"};
    std::vector<std::pair<std::string, std::string>> attributes;  // of which object, which
};

herr_t take_object(hid_t, const char* path, const H5O_info_t*, void* names) {
    static_cast<Names*>(names)->objects.push_back(std::string("/") + path);
    return 0;
}

herr_t take_attribute(hid_t, const char* name, const H5A_info_t*, void* names) {
    auto* all = static_cast<Names*>(names);
    all->attributes.emplace_back(all->objects.front(), name);
    return 0;
}

Names names_in(hid_t file) {
    Names names;
    H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, take_object, &names);
    std::erase(names.objects, "/.");
    for (const std::string& object : names.objects) {
        Names of_one{{object}, {}};
        const Hdf5Id opened(H5Oopen(file, object.c_str(), H5P_DEFAULT), H5Oclose);
        H5Aiterate2(opened, H5_INDEX_NAME, H5_ITER_INC, nullptr, take_attribute, &of_one);
        names.attributes.insert(names.attributes.end(), of_one.attributes.begin(), of_one.attributes.end());
    }
    return names;
}

template <class T>
const T& one_of(const std::vector<T>& all, Bytes& edits) { return all[edits.below(all.size())]; }

// A path that there is, or one beside it.
std::string some_path(const Names& names, Bytes& edits) {
    const std::string path = one_of(names.objects, edits);
    const std::size_t extra = edits.below(4);
    return extra == 0 ? path : (path == "/" ? path : path + "/") + std::string(edits.text(extra)).c_str();
}

Hdf5Id some_type(Bytes& edits) {
    const hid_t numbers[] = {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_STD_I64LE, H5T_STD_I8LE, H5T_STD_U64BE, H5T_STD_U16LE};
    const std::size_t pick = edits.below(std::size(numbers) + 3);
    if (pick < std::size(numbers)) return {H5Tcopy(numbers[pick]), H5Tclose};
    if (pick == std::size(numbers)) return hdf5::string_type();
    if (pick == std::size(numbers) + 1) {
        const hsize_t three = 3;
        return {H5Tarray_create2(H5T_NATIVE_DOUBLE, 1, &three), H5Tclose};
    }
    Hdf5Id fixed(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(fixed, 1 + edits.below(8));
    return fixed;
}

Hdf5Id some_space(Bytes& edits) {
    const std::size_t rank = edits.below(6);
    if (rank == 5) return {H5Screate(H5S_NULL), H5Sclose};
    std::vector<hsize_t> dims;
    for (std::size_t d = 0; d < rank; ++d) dims.push_back(edits.below(5));
    return hdf5::space_of(dims);
}

// Values of any type and space, all alike; those of strings a text of the edits.
void write_values(hid_t object, hid_t type, hid_t space, Bytes& edits, herr_t (*write)(hid_t, hid_t, const void*)) {
    const hssize_t count = H5Sget_simple_extent_npoints(space);
    if (count <= 0) return;
    const auto n = static_cast<std::size_t>(count);
    if (H5Tis_variable_str(type) > 0) {
        const std::string text(edits.text(edits.below(40)));
        const std::vector<const char*> texts(n, text.c_str());
        write(object, type, texts.data());
        return;
    }
    const auto value = edits.number<std::array<char, sizeof(std::int64_t)>>();
    std::vector<char> bytes(n * H5Tget_size(type));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = value[i % value.size()];
    write(object, type, bytes.data());
}

herr_t write_dataset(hid_t dataset, hid_t type, const void* values) {
    return H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
}

void make_attribute(hid_t file, const Names& names, Bytes& edits) {
    if (names.attributes.empty()) return;
    const auto& [object, name] = one_of(names.attributes, edits);
    const Hdf5Id owner(H5Oopen(file, object.c_str(), H5P_DEFAULT), H5Oclose);
    H5Adelete(owner, name.c_str());
    if (edits.byte() % 4 == 0) return;
    const Hdf5Id type = some_type(edits), space = some_space(edits);
    const Hdf5Id made(H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    if (made >= 0) write_values(made, type, space, edits, H5Awrite);
}

void make_dataset(hid_t file, const Names& names, Bytes& edits) {
    const std::string path = some_path(names, edits);
    H5Ldelete(file, path.c_str(), H5P_DEFAULT);
    const Hdf5Id type = some_type(edits), space = some_space(edits), layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    const std::size_t how = edits.below(4);
    std::array<hsize_t, H5S_MAX_RANK> dims{};
    const int rank = H5Sget_simple_extent_dims(space, dims.data(), nullptr);
    if (how == 0) H5Pset_layout(layout, H5D_COMPACT);
    if (how == 1 && rank > 0) H5Pset_chunk(layout, rank, dims.data());
    if (how == 2) H5Pset_alloc_time(layout, H5D_ALLOC_TIME_EARLY);
    const Hdf5Id made(H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT, layout, H5P_DEFAULT), H5Dclose);
    if (made >= 0 && how != 2) write_values(made, type, space, edits, write_dataset);
}

// Other values in a dataset that stays as it is.
void set_values(hid_t file, const Names& names, Bytes& edits) {
    const Hdf5Id dataset(H5Dopen2(file, one_of(names.objects, edits).c_str(), H5P_DEFAULT), H5Dclose);
    if (dataset < 0) return;
    const Hdf5Id type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
    write_values(dataset, type, space, edits, write_dataset);
}

void make_link(hid_t file, const Names& names, Bytes& edits) {
    const std::string target = one_of(names.objects, edits), path = some_path(names, edits);
    if (edits.byte() % 2 == 0) H5Lcreate_soft(target.c_str(), file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT);
    else H5Lcreate_hard(file, target.c_str(), file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT);
}

void make_edit(hid_t file, Bytes& edits) {
    const Names names = names_in(file);
    switch (static_cast<Edit>(edits.below(6))) {
        case Edit::remove: H5Ldelete(file, one_of(names.objects, edits).c_str(), H5P_DEFAULT); break;
        case Edit::rename: {
            const std::string from = one_of(names.objects, edits);
            H5Lmove(file, from.c_str(), file, some_path(names, edits).c_str(), H5P_DEFAULT, H5P_DEFAULT);
            break;
        }
        case Edit::link: make_link(file, names, edits); break;
        case Edit::attribute: make_attribute(file, names, edits); break;
        case Edit::dataset: make_dataset(file, names, edits); break;
        case Edit::values: set_values(file, names, edits); break;
    }
}

}  // namespace

void edit_hdf5(const std::filesystem::path& file, Bytes& edits) {
    constexpr int most = 16;  // a longer way to a file is not another file
    const QuietHdf5 quiet;
    Hdf5Id open = hdf5::own(H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, file.string(), "cannot be opened");
    for (int i = 0; i < most && !edits.empty(); ++i) make_edit(open, edits);
    hdf5::check(open.close(), file.string(), "cannot be closed");
}

}  // namespace quadrille::fuzz

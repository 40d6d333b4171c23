#include "record/hdf5_image.hpp"

#include "base/error.hpp"
#include "record/seal.hpp"

#include <cstring>

namespace quadrille {

using namespace hdf5;

namespace {

constexpr std::size_t image_growth = 1 << 20;  // bytes by which an image under construction grows

Hdf5Id in_memory() {
    Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_fapl_core(access, image_growth, false);
    return access;
}

// The library looks for a file of the image's name on the disk and takes or refuses it; below a file there is none.
std::string unused_name(const std::string& name) { return name + "/image"; }

Hdf5Id create_image(const std::string& name) {
    const Hdf5Id access = in_memory();
    return own(H5Fcreate(unused_name(name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, name,
               "cannot be built in memory");
}

Hdf5Id open_image(const std::string& name, const std::vector<std::byte>& bytes) {
    const Hdf5Id access = in_memory();
    // The library copies what it is given and writes nothing into it.
    check(H5Pset_file_image(access, const_cast<std::byte*>(bytes.data()), bytes.size()), name, "does not fit in memory");
    return own(H5Fopen(unused_name(name).c_str(), H5F_ACC_RDONLY, access), H5Fclose, name, "is damaged or not an HDF5 file");
}

void describe(hid_t dataset, DatasetText text, const std::string& file) {
    write_attribute(dataset, "unit", std::string(text.unit), file);
    write_attribute(dataset, "description", std::string(text.description), file);
}

struct AttributeWalk {
    const std::string* file;
    std::map<std::string, std::string>* found;
    std::string failure;
};

// Called by C, so nothing may be thrown through it.
herr_t visit_attribute(hid_t object, const char* name, const H5A_info_t*, void* data) {
    auto& walk = *static_cast<AttributeWalk*>(data);
    try {
        const Hdf5Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
        const Hdf5Id type(H5Aget_type(attribute), H5Tclose);
        if (H5Tget_class(type) == H5T_STRING)
            (*walk.found)[name] = read_text(attribute, *walk.file, fmt::format("attribute {}", name));
    } catch (const std::exception& error) {
        walk.failure = error.what();
        return -1;
    }
    return 0;
}

}  // namespace

Hdf5ImageWriter::Hdf5ImageWriter(std::string name) : name_(std::move(name)), file_(create_image(name_)) {}

void Hdf5ImageWriter::group(const std::string& path) {
    own(H5Gcreate2(file_, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, name_, path + " cannot be made");
}

void Hdf5ImageWriter::attribute(const std::string& object, const std::string& name, const std::string& value) {
    const Hdf5Id owner = own(H5Oopen(file_, object.c_str(), H5P_DEFAULT), H5Oclose, name_, object + " is missing");
    write_attribute(owner, name, value, name_);
}

void Hdf5ImageWriter::attribute(const std::string& object, const std::string& name, std::int64_t value) {
    const Hdf5Id owner = own(H5Oopen(file_, object.c_str(), H5P_DEFAULT), H5Oclose, name_, object + " is missing");
    write_attribute(owner, name, value, name_);
}

void Hdf5ImageWriter::dataset(const std::string& path, const std::vector<hsize_t>& dims, const std::vector<double>& values,
                              DatasetText text) {
    std::size_t count = 1;
    for (const hsize_t d : dims) count *= d;
    require(count == values.size(), fmt::format("{} has {} values, its dims say {}", path, values.size(), count));
    numbers(path, dims, H5T_NATIVE_DOUBLE, values.data(), text);
}

void Hdf5ImageWriter::dataset(const std::string& path, const std::vector<hsize_t>& dims, const std::vector<std::int64_t>& values,
                              DatasetText text) {
    std::size_t count = 1;
    for (const hsize_t d : dims) count *= d;
    require(count == values.size(), fmt::format("{} has {} values, its dims say {}", path, values.size(), count));
    numbers(path, dims, H5T_NATIVE_INT64, values.data(), text);
}

void Hdf5ImageWriter::numbers(const std::string& path, const std::vector<hsize_t>& dims, hid_t type, const void* values,
                              DatasetText text) {
    const Hdf5Id space = space_of(dims), layout = without_times();
    const Hdf5Id made = own(H5Dcreate2(file_, path.c_str(), type, space, H5P_DEFAULT, layout, H5P_DEFAULT), H5Dclose, name_,
                            path + " cannot be made");
    if (H5Sget_simple_extent_npoints(space) > 0)
        check(H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), name_, path + " cannot be written");
    describe(made, text, name_);
}

void Hdf5ImageWriter::dataset(const std::string& path, const std::vector<std::string>& values, DatasetText text) {
    const Hdf5Id type = string_type(), space = space_of({values.size()}), layout = without_times();
    const Hdf5Id made = own(H5Dcreate2(file_, path.c_str(), type, space, H5P_DEFAULT, layout, H5P_DEFAULT), H5Dclose, name_,
                            path + " cannot be made");
    std::vector<const char*> texts;
    for (const std::string& value : values) texts.push_back(value.c_str());
    if (!texts.empty())
        check(H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()), name_, path + " cannot be written");
    describe(made, text, name_);
}

std::vector<std::byte> Hdf5ImageWriter::finish() {
    check(H5Fflush(file_, H5F_SCOPE_GLOBAL), name_, "cannot be flushed");
    const ssize_t size = H5Fget_file_image(file_, nullptr, 0);
    check(size < 0 ? -1 : 0, name_, "has no image");
    std::vector<std::byte> bytes(static_cast<std::size_t>(size));
    check(H5Fget_file_image(file_, bytes.data(), bytes.size()) < 0 ? -1 : 0, name_, "has no image");
    return sealed(std::move(bytes));
}

Hdf5ImageReader::Hdf5ImageReader(std::string name, std::vector<std::byte> bytes)
    : name_(std::move(name)), bytes_(unsealed(name_, std::move(bytes))), file_(open_image(name_, bytes_)) {}

bool Hdf5ImageReader::exists(const std::string& path) const { return H5Lexists(file_, path.c_str(), H5P_DEFAULT) > 0; }

std::string Hdf5ImageReader::text_attribute(const std::string& object, const std::string& name) const {
    const std::string what = fmt::format("attribute {} of {}", name, object);
    const Hdf5Id attribute = own(H5Aopen_by_name(file_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name_,
                                 what + " is missing");
    return read_text(attribute, name_, what);
}

std::int64_t Hdf5ImageReader::int_attribute(const std::string& object, const std::string& name) const {
    const std::string what = fmt::format("attribute {} of {}", name, object);
    const Hdf5Id attribute = own(H5Aopen_by_name(file_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name_,
                                 what + " is missing");
    const Hdf5Id space(H5Aget_space(attribute), H5Sclose);
    if (H5Sget_simple_extent_npoints(space) != 1) fail(name_, what + " is not one number");
    std::int64_t value = 0;
    check(H5Aread(attribute, H5T_NATIVE_INT64, &value), name_, what + " is not a whole number");
    return value;
}

std::map<std::string, std::string> Hdf5ImageReader::text_attributes(const std::string& object) const {
    std::map<std::string, std::string> found;
    AttributeWalk walk{&name_, &found, ""};
    const Hdf5Id owner = own(H5Oopen(file_, object.c_str(), H5P_DEFAULT), H5Oclose, name_, object + " is missing");
    const herr_t status = H5Aiterate2(owner, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit_attribute, &walk);
    if (!walk.failure.empty()) throw Error(Exit::io_failed, walk.failure);
    check(status, name_, fmt::format("the attributes of {} cannot be read", object));
    return found;
}

std::vector<hsize_t> Hdf5ImageReader::dims_of(hid_t dataset, const std::string& path) const {
    const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 0) fail(name_, path + " has no shape");
    std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space, dims.data(), nullptr);
    return dims;
}

std::vector<hsize_t> Hdf5ImageReader::dims(const std::string& path) const {
    const Hdf5Id dataset = own(H5Dopen2(file_, path.c_str(), H5P_DEFAULT), H5Dclose, name_, path + " is missing");
    return dims_of(dataset, path);
}

// Elements of a dataset; a damaged shape must not ask for more memory than the file could fill.
std::size_t Hdf5ImageReader::count_of(const std::string& path) const {
    std::size_t count = 1;
    for (const hsize_t d : dims(path)) {
        if (d != 0 && count > bytes_.size() / d) fail(name_, path + " claims more elements than the file has bytes");
        count *= d;
    }
    return count;
}

void Hdf5ImageReader::numbers(const std::string& path, hid_t type, std::size_t count, void* into) const {
    const Hdf5Id dataset = own(H5Dopen2(file_, path.c_str(), H5P_DEFAULT), H5Dclose, name_, path + " is missing");
    if (count > 0) check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, into), name_, path + " cannot be read");
}

std::vector<double> Hdf5ImageReader::doubles(const std::string& path) const {
    std::vector<double> values(count_of(path));
    numbers(path, H5T_NATIVE_DOUBLE, values.size(), values.data());
    return values;
}

std::vector<std::int64_t> Hdf5ImageReader::ints(const std::string& path) const {
    std::vector<std::int64_t> values(count_of(path));
    numbers(path, H5T_NATIVE_INT64, values.size(), values.data());
    return values;
}

std::vector<std::string> Hdf5ImageReader::strings(const std::string& path) const {
    std::vector<char*> texts(count_of(path), nullptr);
    const Hdf5Id dataset = own(H5Dopen2(file_, path.c_str(), H5P_DEFAULT), H5Dclose, name_, path + " is missing");
    if (texts.empty()) return {};
    const Hdf5Id type = string_type(), space(H5Dget_space(dataset), H5Sclose);
    check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()), name_, path + " cannot be read");
    std::vector<std::string> values;
    for (const char* text : texts) values.emplace_back(text ? text : "");
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, texts.data());
    return values;
}

}  // namespace quadrille

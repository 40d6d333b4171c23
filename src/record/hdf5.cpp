#include "record/hdf5.hpp"

#include "base/error.hpp"

#include <cstring>

namespace quadrille {
namespace {

// The library's state is one for the process, and so is its lock.
std::recursive_mutex& library() {
    static std::recursive_mutex mutex;
    return mutex;
}

}  // namespace

QuietHdf5::QuietHdf5() : lock_(library()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}
QuietHdf5::~QuietHdf5() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

namespace hdf5 {
namespace {

herr_t keep_deepest(unsigned depth, const H5E_error2_t* error, void* into) {
    if (depth == 0 && error->desc) *static_cast<std::string*>(into) = error->desc;
    return 0;
}

void write_scalar(hid_t object, const std::string& name, hid_t stored, hid_t type, const void* value, const std::string& file) {
    const Hdf5Id space = space_of({});
    const Hdf5Id made = own(H5Acreate2(object, name.c_str(), stored, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, file,
                                 fmt::format("attribute {} cannot be made", name));
    check(H5Awrite(made, type, value), file, fmt::format("attribute {} cannot be written", name));
}

Hdf5Id open_attribute(hid_t object, const std::string& name, const std::string& file) {
    return own(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, file, fmt::format("attribute {} is missing", name));
}

void read_scalar(hid_t object, const std::string& name, hid_t type, void* into, const std::string& file) {
    const Hdf5Id attribute = open_attribute(object, name, file);
    const Hdf5Id space(H5Aget_space(attribute), H5Sclose);
    if (H5Sget_simple_extent_npoints(space) != 1) fail(file, fmt::format("attribute {} is not one number", name));
    check(H5Aread(attribute, type, into), file, fmt::format("attribute {} is not a number", name));
}

}  // namespace

void fail(const std::string& file, const std::string& what) {
    std::string reason;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_deepest, &reason);
    H5Eclear2(H5E_DEFAULT);
    if (reason.find("lock file") != std::string::npos)
        reason += "; another process has locked it, or its file system has no locks: the environment variable HDF5_USE_FILE_LOCKING=FALSE makes HDF5 "
                  "do without";
    throw Error(Exit::io_failed, fmt::format("{}: {}{}{}", file, what, reason.empty() ? "" : ": ", reason));
}

void check(herr_t status, const std::string& file, const std::string& what) {
    if (status < 0) fail(file, what);
}

Hdf5Id own(hid_t id, Hdf5Id::Close close, const std::string& file, const std::string& what) {
    if (id < 0) fail(file, what);
    return {id, close};
}

Hdf5Id string_type() {
    Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

Hdf5Id space_of(const std::vector<hsize_t>& dims) {
    if (dims.empty()) return {H5Screate(H5S_SCALAR), H5Sclose};
    return {H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose};
}

Hdf5Id without_times() {
    Hdf5Id layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(layout, false);
    return layout;
}

void write_attribute(hid_t object, const std::string& name, const std::string& value, const std::string& file) {
    const Hdf5Id type = string_type();
    const char* text = value.c_str();
    write_scalar(object, name, type, type, &text, file);
}

void write_attribute(hid_t object, const std::string& name, std::int64_t value, const std::string& file) {
    write_scalar(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, file);
}

void write_attribute(hid_t object, const std::string& name, std::uint64_t value, const std::string& file) {
    write_scalar(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &value, file);
}

void write_attribute(hid_t object, const std::string& name, double value, const std::string& file) {
    write_scalar(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value, file);
}

std::string read_text(hid_t attribute, const std::string& file, const std::string& what) {
    const Hdf5Id stored(H5Aget_type(attribute), H5Tclose);
    const Hdf5Id space(H5Aget_space(attribute), H5Sclose);
    if (H5Tget_class(stored) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1) fail(file, what + " is not a string");
    if (H5Tis_variable_str(stored) > 0) {
        const Hdf5Id type = string_type();
        char* text = nullptr;
        check(H5Aread(attribute, type, &text), file, what + " cannot be read");
        const std::string value = text ? text : "";
        H5free_memory(text);
        return value;
    }
    std::string value(H5Tget_size(stored), '\0');
    check(H5Aread(attribute, stored, value.data()), file, what + " cannot be read");
    return value.substr(0, std::strlen(value.c_str()));
}

std::string text_attribute(hid_t object, const std::string& name, const std::string& file) {
    return read_text(open_attribute(object, name, file), file, fmt::format("attribute {}", name));
}

std::int64_t int_attribute(hid_t object, const std::string& name, const std::string& file) {
    std::int64_t value = 0;
    read_scalar(object, name, H5T_NATIVE_INT64, &value, file);
    return value;
}

std::uint64_t unsigned_attribute(hid_t object, const std::string& name, const std::string& file) {
    std::uint64_t value = 0;
    read_scalar(object, name, H5T_NATIVE_UINT64, &value, file);
    return value;
}

double double_attribute(hid_t object, const std::string& name, const std::string& file) {
    double value = 0;
    read_scalar(object, name, H5T_NATIVE_DOUBLE, &value, file);
    return value;
}

}  // namespace hdf5
}  // namespace quadrille

// The file of a checkpoint as another program might have made it: sound HDF5, a seal that holds, and datasets that are not what a checkpoint has.
#include "base/error.hpp"
#include "checkpoint/plain_file.hpp"
#include "checkpoint/stored_file.hpp"
#include "record/hdf5.hpp"
#include "unit/temporary_directory.hpp"

#include <doctest.h>

#include <functional>

using namespace quadrille;

namespace {

constexpr const char* name = "/parameters/a";

// What the reader says of a file whose one dataset is replaced by `make` before it is sealed.
std::string said_of(const std::function<hid_t(hid_t file)>& make) {
    const TemporaryDirectory directory;
    std::vector<StoredTensor> tensors = {{name, {2, 3}}};
    const auto file = directory.path() / "checkpoint.h5";
    make_file(file, {}, tensors);
    {
        const QuietHdf5 quiet;
        const Hdf5Id open(H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        H5Ldelete(open, name, H5P_DEFAULT);
        const Hdf5Id made(make(open), H5Dclose);
        hdf5::write_attribute(made, "xxh3_64", std::uint64_t{0}, "test");
        tensors[0].offset = static_cast<std::int64_t>(H5Dget_offset(made));
        tensors[0].bytes = static_cast<std::int64_t>(H5Dget_storage_size(made));
    }
    seal_file(file, tensors);
    try {
        const Checkpoint read = read_structures(directory.path());
        CHECK(read.tensors.size() == 1);
    } catch (const Damaged& e) {
        return e.what();
    }
    return "";
}

hid_t dataset(hid_t file, hid_t type, const std::vector<hsize_t>& dims) {
    const Hdf5Id space = hdf5::space_of(dims), layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_alloc_time(layout, H5D_ALLOC_TIME_EARLY);
    return H5Dcreate2(file, name, type, space, H5P_DEFAULT, layout, H5P_DEFAULT);
}

}  // namespace

TEST_CASE("datasets of other types than fp32 are refused, those of any shape are read") {
    CHECK(said_of([](hid_t file) { return dataset(file, H5T_IEEE_F32LE, {2, 3}); }).empty());
    CHECK(said_of([](hid_t file) { return dataset(file, H5T_IEEE_F32LE, {}); }).empty());
    for (const hid_t type : {H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_STD_I32LE, H5T_STD_U8LE})
        CHECK(said_of([&](hid_t file) { return dataset(file, type, {2, 3}); })
                  .ends_with(": /parameters/a is not fp32, row-major and without gaps, as this program stores tensors"));
}

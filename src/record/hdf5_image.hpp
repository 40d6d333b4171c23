// HDF5 files as bytes in memory.
//
// A file is built or read as an image, so that the disk is touched by plain writes and reads alone: a full disk is an errno and not a half-closed
// file, and no lock of HDF5's stands in a shared file system's way. Images are sealed (seal.hpp), since HDF5 does not survive every damage.
#pragma once
#include "record/hdf5.hpp"

#include <cstddef>
#include <map>
#include <string_view>

namespace quadrille {

// What a dataset says of itself.
struct DatasetText {
    std::string_view unit, description;
};

// A file under construction. `name` is what errors call it.
class Hdf5ImageWriter {
  public:
    explicit Hdf5ImageWriter(std::string name);

    void group(const std::string& path);
    void attribute(const std::string& object, const std::string& name, const std::string& value);
    void attribute(const std::string& object, const std::string& name, std::int64_t value);
    // Row-major values of the given dims; no dims: one number.
    void dataset(const std::string& path, const std::vector<hsize_t>& dims, const std::vector<double>& values, DatasetText text);
    void dataset(const std::string& path, const std::vector<hsize_t>& dims, const std::vector<std::int64_t>& values,
                 DatasetText text);
    void dataset(const std::string& path, const std::vector<std::string>& values, DatasetText text);

    std::vector<std::byte> finish();  // the whole file; the last call

  private:
    void numbers(const std::string& path, const std::vector<hsize_t>& dims, hid_t type, const void* values, DatasetText text);

    QuietHdf5 quiet_;
    std::string name_;
    Hdf5Id file_;
};

// A whole file in memory. Every method throws Error{io_failed} with the file's name and the reason.
class Hdf5ImageReader {
  public:
    Hdf5ImageReader(std::string name, std::vector<std::byte> bytes);

    bool exists(const std::string& path) const;
    std::string text_attribute(const std::string& object, const std::string& name) const;
    std::int64_t int_attribute(const std::string& object, const std::string& name) const;
    std::map<std::string, std::string> text_attributes(const std::string& object) const;  // the strings among its attributes

    std::vector<hsize_t> dims(const std::string& dataset) const;
    std::vector<double> doubles(const std::string& dataset) const;
    std::vector<std::int64_t> ints(const std::string& dataset) const;
    std::vector<std::string> strings(const std::string& dataset) const;

    const std::string& name() const { return name_; }

  private:
    std::vector<hsize_t> dims_of(hid_t dataset, const std::string& path) const;
    void numbers(const std::string& path, hid_t type, std::size_t count, void* into) const;
    std::size_t count_of(const std::string& path) const;

    QuietHdf5 quiet_;
    std::string name_;
    std::vector<std::byte> bytes_;
    Hdf5Id file_;
};

}  // namespace quadrille

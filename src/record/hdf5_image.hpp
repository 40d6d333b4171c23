// HDF5 files as bytes in memory, through small owners of the C API's handles.
//
// Owns all use of HDF5 in this room. A file is built or read as an image, so that the disk is touched by plain writes and reads
// alone: a full disk is an errno and not a half-closed file, and no lock of HDF5's stands in a shared file system's way. Numbers
// are doubles and int64, strings variable-length UTF-8. Images are sealed (seal.hpp), since HDF5 does not survive every damage.
// HDF5's error printing is off while an object of this file lives; its deepest message ends up in an Error{io_failed} instead.
// Every call comes from one thread (the parallel library is not thread-safe).
#pragma once
#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quadrille {

// An HDF5 identifier and the call that closes it.
class Hdf5Id {
  public:
    using Close = herr_t (*)(hid_t);
    Hdf5Id(hid_t id, Close close) : id_(id), close_(close) {}
    Hdf5Id(Hdf5Id&& other) noexcept : id_(other.id_), close_(other.close_) { other.id_ = -1; }
    Hdf5Id(const Hdf5Id&) = delete;
    Hdf5Id& operator=(const Hdf5Id&) = delete;
    Hdf5Id& operator=(Hdf5Id&&) = delete;
    ~Hdf5Id() {
        if (id_ >= 0) close_(id_);
    }
    operator hid_t() const { return id_; }

  private:
    hid_t id_;
    Close close_;
};

// Turns off HDF5's printing of errors for its lifetime.
class QuietHdf5 {
  public:
    QuietHdf5();
    ~QuietHdf5();
    QuietHdf5(const QuietHdf5&) = delete;
    QuietHdf5& operator=(const QuietHdf5&) = delete;

  private:
    H5E_auto2_t print_ = nullptr;
    void* data_ = nullptr;
};

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

// Small owners of the C API's handles of HDF5, its errors as Error, and one thread at a time in the library.
//
// Numbers are doubles and int64, strings variable-length UTF-8. The usual builds of HDF5 are not thread-safe, the parallel one never is: whoever
// calls it holds a QuietHdf5, which keeps other threads out.
#pragma once
#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
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
    // Closes it now, where the answer matters.
    herr_t close() {
        return close_(std::exchange(id_, -1));
    }
    // Leaves it open for good; whether it was.
    bool leave() { return std::exchange(id_, -1) >= 0; }

  private:
    hid_t id_;
    Close close_;
};

// For its lifetime this thread alone may call HDF5, which does not print its errors. May be nested.
class QuietHdf5 {
  public:
    QuietHdf5();
    ~QuietHdf5();
    QuietHdf5(const QuietHdf5&) = delete;
    QuietHdf5& operator=(const QuietHdf5&) = delete;

  private:
    std::unique_lock<std::recursive_mutex> lock_;
    H5E_auto2_t print_ = nullptr;
    void* data_ = nullptr;
};

namespace hdf5 {

// Throws Error{io_failed}: file, what has failed and the deepest reason that HDF5 gives; where that is a lock, what to do about it.
[[noreturn]] void fail(const std::string& file, const std::string& what);
void check(herr_t status, const std::string& file, const std::string& what);
// The identifier with its owner; throws as `fail` where there is none.
Hdf5Id own(hid_t id, Hdf5Id::Close close, const std::string& file, const std::string& what);

Hdf5Id string_type();
Hdf5Id space_of(const std::vector<hsize_t>& dims);  // no dims: one element
Hdf5Id without_times();                             // creation properties without times: the same run gives the same bytes

// Attributes of an open object. Text is read in whichever way its writer stored strings.
void write_attribute(hid_t object, const std::string& name, const std::string& value, const std::string& file);
void write_attribute(hid_t object, const std::string& name, std::int64_t value, const std::string& file);
void write_attribute(hid_t object, const std::string& name, std::uint64_t value, const std::string& file);
void write_attribute(hid_t object, const std::string& name, double value, const std::string& file);
std::string read_text(hid_t attribute, const std::string& file, const std::string& what);
std::string text_attribute(hid_t object, const std::string& name, const std::string& file);
std::int64_t int_attribute(hid_t object, const std::string& name, const std::string& file);
std::uint64_t unsigned_attribute(hid_t object, const std::string& name, const std::string& file);
double double_attribute(hid_t object, const std::string& name, const std::string& file);

}  // namespace hdf5
}  // namespace quadrille

// One safetensors file: 8 bytes with the length of the header (little-endian), the header, JSON that names each tensor's dtype, shape and bytes, and
// the tensors' bytes, row-major and little-endian, without gaps (the format's own description, huggingface.co/docs/safetensors). Owns what makes such
// a file whole; knows no model. Not collective.
//
// A header that speaks of bytes that the file has not, has twice or leaves out is refused before any tensor is read.
#pragma once
#include "checkpoint/plain_file.hpp"
#include "ir/dtype.hpp"

#include <map>
#include <string>
#include <vector>

namespace quadrille {

// A tensor's place in a file.
struct SafeTensor {
    std::string name;
    std::string dtype;                // as the file says it: F32, F16, BF16, or another that is not read here
    std::vector<std::int64_t> shape;
    std::int64_t offset = 0, bytes = 0;  // in the file
    std::int64_t elements() const;
};

// F32, F16 or BF16; throws Error{refused} naming the tensor for any other.
DType dtype_of(const SafeTensor&, const std::filesystem::path& file);
std::string safetensors_name(DType);

class SafetensorsFile {
  public:
    // Reads and checks the header. Throws Damaged with file and reason.
    explicit SafetensorsFile(const std::filesystem::path& file);

    const std::filesystem::path& path() const { return path_; }
    const std::vector<SafeTensor>& tensors() const { return tensors_; }  // in the order of their bytes
    // Elements first .. first + into.size() as fp32, exactly. Throws Damaged, Error{refused} for a dtype that is not read.
    void read(const SafeTensor&, std::int64_t first, std::span<float> into) const;

  private:
    std::filesystem::path path_;
    PlainFile file_;
    std::vector<SafeTensor> tensors_;
};

class SafetensorsWriter {
  public:
    // Makes the file with its header, and takes the space of all of it. `tensors` have names and shapes; in this order, all of `dtype`.
    SafetensorsWriter(const std::filesystem::path& file, std::vector<SafeTensor> tensors, DType dtype);

    // All of the next tensor, rounded to the file's dtype. Throws Error{refused} where a finite value would be none.
    void write_next(std::span<const float> values);
    // Throws std::logic_error unless all have been written.
    void finish();

  private:
    PlainFile file_;
    std::vector<SafeTensor> tensors_;
    DType dtype_;
    std::size_t next_ = 0;
};

}  // namespace quadrille

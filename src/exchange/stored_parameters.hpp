// The parameters of a checkpoint as an export reads them: rows of matrices, with adapters added to what they adapt. Owns the checks that they are
// whole and those of the checkpoint's own model; knows no file of another library.
#pragma once
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/plain_file.hpp"
#include "config/lora.hpp"
#include "exchange/layout.hpp"

#include <map>
#include <span>

namespace quadrille {

class StoredParameters {
  public:
    // Of the checkpoint at `path`, a step's folder or its parent (its newest). Reads all of them for their checksums. Throws Error{refused} where
    // there is none, Error{io_failed} where it is damaged.
    explicit StoredParameters(const std::filesystem::path& path);

    const std::filesystem::path& folder() const { return checkpoint_.folder; }
    const Config& config() const { return config_; }

    // Throws Error{io_failed} unless they are those of the layout, in its shapes, with the adapters that the checkpoint's input says, and no more.
    void check(const std::vector<TheirTensor>& layout) const;

    // Rows first, first + 1, ... of a part, [.., part.in]. Of an adapted matrix W + (alpha / rank) B A (eq. 3 of Hu et al. 2021), summed in double
    // and rounded once.
    void read_rows(const OurPart& part, std::int64_t first, std::span<float> rows);

  private:
    const StoredTensor& stored(const std::string& name) const;
    void read(const StoredTensor&, std::int64_t first, std::span<float> into) const;
    void add_adapter(const LinearMatrix&, std::int64_t first, std::span<float> rows);

    Checkpoint checkpoint_;
    Config config_;
    PlainFile file_;
    std::map<std::string, LinearMatrix> adapted_;  // by the name of the weight
    std::string name_of_a_;                        // of the matrix whose A is below
    std::vector<float> a_;                         // [rank, in]
};

}  // namespace quadrille

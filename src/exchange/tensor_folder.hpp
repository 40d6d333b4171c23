// The tensors of a model's folder: model.safetensors, or the shards that model.safetensors.index.json names. Owns their being one set: each tensor in
// one file, and no more than the index says. Reading only; knows no model.
#pragma once
#include "exchange/safetensors.hpp"

#include <map>
#include <memory>
#include <optional>

namespace quadrille {

inline constexpr const char* whole_name = "model.safetensors";
inline constexpr const char* index_name = "model.safetensors.index.json";

class TensorFolder {
  public:
    struct Place {
        const SafetensorsFile* file = nullptr;
        const SafeTensor* tensor = nullptr;
    };

    // Reads and checks all headers. Throws Error{refused} where the folder has neither, Damaged with file and reason.
    explicit TensorFolder(const std::filesystem::path& folder);

    const std::map<std::string, Place>& places() const { return places_; }  // by name

  private:
    void add(const std::filesystem::path& file);
    void check_index(const std::filesystem::path& index, const std::map<std::string, std::string>& file_of) const;
    std::vector<std::unique_ptr<SafetensorsFile>> files_;
    std::map<std::string, Place> places_;
};

}  // namespace quadrille

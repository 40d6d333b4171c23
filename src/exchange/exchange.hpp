// Checkpoints to and from the files of Hugging Face's models: config.json and safetensors, in the layouts of GPT-2 and Llama (exchange/layout.hpp).
// One process, no MPI; memory holds one tensor at a time. What is written has its name only when it is whole.
#pragma once
#include "config/config.hpp"
#include "ir/dtype.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quadrille {

struct ExportSettings {
    DType dtype = DType::f32;                              // or bf16, f16
    std::int64_t most_bytes = std::int64_t{5'000'000'000}; // of one file's values, unless a tensor is larger; more files have an index
    bool merge_lora = false;                               // adds adapters to the weights
    bool replace = false;                                  // a former export in the folder
};

struct Exported {
    std::filesystem::path checkpoint;  // the step's folder
    std::string family;
    std::int64_t parameters = 0, bytes = 0, files = 0;
    std::vector<std::string> notes;    // of what dead exports have left
};

// Writes the parameters of a checkpoint, a step's folder or its parent (its newest), to `folder`, which is made: missing or empty before
// (exchange/target.hpp). Every parameter's checksum is checked first. Throws Error{refused} where neither family holds the model, it has adapters
// that are not to be merged (or none that are), a value is beyond the dtype, or the folder may not be made; Error{io_failed} for a damaged
// checkpoint, and where it cannot be written.
Exported export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& folder, const ExportSettings& settings = {});

struct ImportSettings {
    std::vector<std::string> overrides = {};  // of the input, "model.key=value", on top of what config.json says
    bool replace = false;                     // step 0 of the directory
};

struct Imported {
    std::filesystem::path checkpoint;  // DIRECTORY/step-00000000
    Config config;                     // what it says in the checkpoint
    std::int64_t parameters = 0, bytes = 0;
    std::vector<std::string> left;     // their tensors that are no parameters
    std::vector<std::string> notes;    // of what dead imports have left
};

// Writes the model in `folder` as a checkpoint of step 0 into `directory`, without moments: a run begins with it. Throws Error{refused} where it is a
// model that ours cannot be, or has other tensors or shapes than config.json says, or the directory holds a step (exchange/target.hpp);
// Error{io_failed} for damaged files, and where it cannot be written.
Imported import_model(const std::filesystem::path& folder, const std::filesystem::path& directory, const ImportSettings& settings = {});

}  // namespace quadrille

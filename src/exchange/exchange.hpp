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
};

struct Exported {
    std::filesystem::path checkpoint;  // the step's folder
    std::string family;
    std::int64_t parameters = 0, bytes = 0, files = 0;
};

// Writes the parameters of a checkpoint, a step's folder or its parent (its newest), to `folder`, which is made: missing or empty before. Every
// parameter's checksum is checked first. Throws Error{refused} where neither family holds the model, it has adapters, or the folder is not empty;
// Error{io_failed} for a damaged checkpoint, and where it cannot be written.
Exported export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& folder, const ExportSettings& settings = {});

struct Imported {
    std::filesystem::path checkpoint;  // DIRECTORY/step-00000000
    Config config;                     // what it says in the checkpoint
    std::int64_t parameters = 0, bytes = 0;
    std::vector<std::string> left;     // their tensors that are no parameters
};

// Writes the model in `folder` as a checkpoint of step 0 into `directory`, without moments: a run begins with it. The overrides of the input
// ("section.key=value") come on top of what config.json says. Throws Error{refused} where it is a model that ours cannot be, or has other tensors or
// shapes than config.json says, or the directory holds a step; Error{io_failed} for damaged files.
Imported import_model(const std::filesystem::path& folder, const std::filesystem::path& directory, const std::vector<std::string>& overrides = {});

// The section `model` of an input file.
std::string model_section(const Config&);

}  // namespace quadrille

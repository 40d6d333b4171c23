// A checkpoint as text, for `quadrille inspect`.
#pragma once
#include <filesystem>
#include <string>

namespace quadrille {

// Whether `path` is a checkpoint's file, a step's folder, or a folder of steps.
bool is_checkpoint(const std::filesystem::path& path);

// Model, step, sizes and checksums of the checkpoint at `path`; of a folder of steps, those of the newest and the names of the others. Reads all
// of it. Needs no MPI. Throws Error{io_failed} naming each damaged part.
std::string inspect_checkpoint(const std::filesystem::path& path);

}  // namespace quadrille

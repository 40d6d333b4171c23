// Gives every file of the folders named to the fuzzer once, where there is no libFuzzer: what was found stays found, with every compiler.
#include "fuzz/fuzz.hpp"

#include <set>

// For the mutators, which nobody calls here.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t size, std::size_t) { return size; }

int main(int argc, char** argv) {
    std::set<std::filesystem::path> files;
    for (int i = 1; i < argc; ++i)
        for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.insert(entry.path());
    for (const auto& file : files) {
        std::fprintf(stderr, "%s\n", file.c_str());  // the last one named is the one that a crash is of
        const std::string bytes = quadrille::fuzz::contents(file);
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
    std::fprintf(stderr, "%zu inputs\n", files.size());
    return files.empty() ? 1 : 0;
}

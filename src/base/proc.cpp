#include "base/proc.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace quadrille {

std::optional<std::int64_t> number_after(const std::filesystem::path& file, std::string_view key) {
    std::ifstream in(file);
    for (std::string line, word; std::getline(in, line);) {
        std::istringstream words(line);
        std::int64_t n = 0;
        if (words >> word >> n && word == key) return n;
    }
    return {};
}

}  // namespace quadrille

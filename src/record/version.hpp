// Which Quadrille this is. The values are baked in by the build.
#pragma once
#include <string_view>

namespace quadrille {

std::string_view version();     // 0.1.0
std::string_view git_commit();  // full hash, "-dirty" appended where the tree differs, or "unknown" outside a checkout

}  // namespace quadrille

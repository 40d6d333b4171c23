#include "record/version.hpp"

#include "git_commit.hpp"

namespace quadrille {

std::string_view version() { return QUADRILLE_VERSION; }
std::string_view git_commit() { return baked_git_commit; }

}  // namespace quadrille

// The name by which files tell which machine has made them.
#pragma once
#include <string>

namespace quadrille {

std::string host_name();

}  // namespace quadrille

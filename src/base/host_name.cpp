#include "base/host_name.hpp"

#include <unistd.h>

namespace quadrille {

std::string host_name() {
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    return host;
}

}  // namespace quadrille

// For an HDF5 that was built without MPI.
#include "checkpoint/transport.hpp"

namespace quadrille {

bool has_mpi_io() { return false; }

Transport mpi_io(const Collectives&, const Hints&) {
    require(false, "checkpoint: this HDF5 is without MPI-IO");
    return {false, {-1, H5Pclose}, {-1, H5Pclose}};
}

}  // namespace quadrille

// For an HDF5 that was built with MPI.
#include "checkpoint/transport.hpp"

namespace quadrille {

bool has_mpi_io() { return true; }

Transport mpi_io(const Collectives& ranks, const Hints& hints) {
    MPI_Info info = MPI_INFO_NULL;
    mpi_check(MPI_Info_create(&info));
    for (const auto& [key, value] : hints) MPI_Info_set(info, key.c_str(), value.c_str());  // one that MPI does not take is no hint
    Transport by{true, {H5Pcreate(H5P_FILE_ACCESS), H5Pclose}, {H5Pcreate(H5P_DATASET_XFER), H5Pclose}};
    const herr_t set = H5Pset_fapl_mpio(by.access, ranks.comm(), info);
    MPI_Info_free(&info);
    H5Pset_all_coll_metadata_ops(by.access, true);  // one rank reads the structures for all
    hdf5::check(set, "MPI-IO", "cannot be used by HDF5");
    hdf5::check(H5Pset_dxpl_mpio(by.transfer, H5FD_MPIO_COLLECTIVE), "MPI-IO", "cannot be used by HDF5");
    return by;
}

}  // namespace quadrille

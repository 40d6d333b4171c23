# Debian and Ubuntu with MPICH beside or instead of Open MPI: the packages libmpich-dev, mpich and libhdf5-mpich-dev.
set(MPI_C_COMPILER mpicc.mpich CACHE STRING "")
set(MPIEXEC_EXECUTABLE /usr/bin/mpirun.mpich CACHE FILEPATH "")
set(HDF5_PREFER_PARALLEL ON CACHE BOOL "")
set(HDF5_C_COMPILER_EXECUTABLE /usr/bin/h5pcc.mpich CACHE FILEPATH "")

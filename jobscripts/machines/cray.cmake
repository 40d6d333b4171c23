# HPE Cray with PrgEnv-gnu: the wrappers CC and cc know MPI and, after `module load cray-hdf5-parallel`, HDF5. The wrapper adds
# the compute nodes' -march (module craype-...), which is not that of the login node.
set(CMAKE_CXX_COMPILER CC CACHE STRING "")
set(CMAKE_C_COMPILER cc CACHE STRING "")
set(MPI_C_COMPILER cc CACHE STRING "")
set(QUADRILLE_ARCH "" CACHE STRING "")
set(HDF5_PREFER_PARALLEL ON CACHE BOOL "")
set(HDF5_C_COMPILER_EXECUTABLE h5pcc CACHE STRING "")

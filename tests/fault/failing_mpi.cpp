// A library to be loaded before MPI's, for tests: the rank FAILING_RANK is told that it cannot open a file with MPI-IO, to write or to read
// (FAILING_OPEN), though the call has come to its end on all ranks.
#include <mpi.h>

#include <cstdlib>
#include <string_view>

extern "C" int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* file) {
    const int rc = PMPI_File_open(comm, name, mode, info, file);
    const char *rank = std::getenv("FAILING_RANK"), *how = std::getenv("FAILING_OPEN");
    int here = 0;
    MPI_Comm_rank(comm, &here);
    const bool reads = (mode & MPI_MODE_RDONLY) != 0;
    const bool fails = rank && how && here == std::atoi(rank) && std::string_view(how) == (reads ? "read" : "write");
    return fails ? MPI_ERR_IO : rc;
}

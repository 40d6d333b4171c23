// How the ranks use one HDF5 file: all at once through MPI-IO, or, where the library is without it or a rank is alone, by the system's own calls.
// Owns opening, closing and their order among the ranks.
#pragma once
#include "comm/collectives.hpp"
#include "record/hdf5.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace quadrille {

using Hints = std::map<std::string, std::string>;

struct Transport {
    bool collective = false;  // every rank must make the same calls
    Hdf5Id access;            // properties of opening
    Hdf5Id transfer;          // properties of reading and writing values
};

// Whether the library was built with MPI, and its transport then (mpi_io/). Collective.
bool has_mpi_io();
Transport mpi_io(const Collectives&, const Hints& hints);

struct OpenFile {
    hid_t id;
    hid_t transfer;
    const std::string& name;
};

enum class Use { read, write };

// Opens the file on every rank and calls `work`: at once, with the same calls on all ranks, through MPI-IO; without it, readers at once and writers
// one after the other. `work` throws nothing before it has made all its calls. Collective; throws Error{io_failed} where this rank has failed.
void use_file(const Collectives&, const std::filesystem::path& file, Use use, const Hints& hints, const std::function<void(const OpenFile&)>& work);

}  // namespace quadrille

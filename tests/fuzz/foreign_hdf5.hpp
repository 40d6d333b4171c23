// What another program might make of a file of ours, through HDF5's own calls: a sound HDF5 file with something else in it.
//
// HDF5 does not survive every damage to its structures, and its readers keep it from seeing any by checksums that come first. So the fuzzers never
// damage those below a checksum that holds: what HDF5 is given, HDF5 has made.
#pragma once
#include "fuzz/fuzz.hpp"

#include <filesystem>

namespace quadrille::fuzz {

// Makes the changes that the bytes say, until they end; a change that HDF5 refuses is none.
void edit_hdf5(const std::filesystem::path& file, Bytes& edits);

}  // namespace quadrille::fuzz

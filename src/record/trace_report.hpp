// A trace as text: what each queue did and which kinds of op took the time. Reads the file; needs no MPI.
#pragma once
#include <filesystem>
#include <string>

namespace quadrille {

class Hdf5ImageReader;

// Of a trace.h5 that is open. Events and seconds are means per rank and step; where events of one queue or kind overlap, that time counts once,
// so no share passes 100 %.
// Throws Error{io_failed} where its tables do not belong together.
std::string trace_summary(const Hdf5ImageReader& file);

}  // namespace quadrille

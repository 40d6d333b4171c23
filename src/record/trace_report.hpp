// A trace as text: what each queue did and which kinds of op took the time. Reads the file; needs no MPI.
#pragma once
#include <filesystem>
#include <string>

namespace quadrille {

class Hdf5ImageReader;

// Of a trace.h5 that is open. Seconds are means per rank and step; moves of one queue may overlap, so their sum may pass the span.
// Throws Error{io_failed} where its tables do not belong together.
std::string trace_summary(const Hdf5ImageReader& file);

}  // namespace quadrille

// Which units' gradients are compressed: the vocabulary of comm.compression.exclude. Units are the blocks (layers.0, ... and their adapters,
// layers.0.lora), embedding and head, which are one, "tied", where they share their table.
#pragma once
#include "config/config.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace quadrille {

// The names that may stand in comm.compression.exclude, or parts of them.
std::vector<std::string> unit_names(const Config&);

// Whether a part of comm.compression.exclude is one of some unit's name.
bool names_unit(const Config&, std::string_view part);

// Whether a unit is excluded: a name in the list is a run of whole parts of its own, as layers, 3 and layers.3 are of layers.3. A shared table is
// excluded with either of its uses.
bool sent_whole(const CompressionConfig&, std::string_view unit);

}  // namespace quadrille

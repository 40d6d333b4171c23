// What the input says of the devices that run it: the engine's settings, and what programs take beside their tensors.
#pragma once
#include "comm/engine.hpp"
#include "compile/lay_out.hpp"
#include "config/config.hpp"

namespace quadrille {

// All but the staging's place.
EngineOptions engine_options(const Config&);
Workspace workspace_of(const Config&);

}  // namespace quadrille

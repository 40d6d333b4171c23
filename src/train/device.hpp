// What the input says of the devices that run it: the device, the engine's settings, and what programs take beside their tensors.
#pragma once
#include "comm/engine.hpp"
#include "compile/lay_out.hpp"
#include "config/config.hpp"
#include "device/device.hpp"
#include "storage/nvme_file.hpp"

#include <memory>

namespace quadrille {

// All but the staging's place, and of the file all but its size and the staging's.
EngineOptions engine_options(const Config&);
NvmeOptions nvme_options(const Config&);
std::unique_ptr<Device> device_of(const Config&);
Workspace workspace_of(const Config&);

}  // namespace quadrille

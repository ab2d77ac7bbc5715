#pragma once

#include <utility>
#include <vector>

#include "lockstep/xla/pjrt/client.h"
#include "lockstep/xla/pjrt/plugin.h"

namespace lockstep::xla {

/// Returns the devices of this process with their handles, in the order of their ids.
std::vector<std::pair<DeviceInfo, void*>> own_devices(const Plugin& plugin, void* client);

}  // namespace lockstep::xla

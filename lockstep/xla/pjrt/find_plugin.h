#pragma once

#include <string>
#include <vector>

#include "lockstep/xla/pjrt/client.h"

namespace lockstep::xla {

/// Returns whether this machine has TPU chips, by the devices of their drivers.
bool has_tpu_chips();

/// Returns what `find_plugin` looks at, in its order, relative to `library`, the folder of the shared library.
std::vector<std::string> plugin_folders(const std::string& library);

}  // namespace lockstep::xla

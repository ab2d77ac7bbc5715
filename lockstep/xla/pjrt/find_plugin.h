#pragma once

#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::xla {

/// Returns the path of the plugin, or "" if there is none. Searches LOCKSTEP_PJRT_PLUGIN, PJRT_PLUGIN_LIBRARY_PATH,
/// TPU_LIBRARY_PATH, then `plugins_beside` the library. `searched` gets every searched location, for messages.
LOCKSTEP_API std::string find_plugin(std::vector<std::string>* searched = nullptr);

/// Returns files of known names in the folder of `library` and in its folders `pjrt` and `lockstep/pjrt`. Left out are
/// files that belong to another user than root, this one and the owner of the library, and files that others may write,
/// or whose folder others may write; `searched` says so.
LOCKSTEP_API std::vector<std::string> plugins_beside(const std::string& library,
                                                     std::vector<std::string>* searched = nullptr);

/// Returns all plugins that are present; the one that `find_plugin` returns is the first.
LOCKSTEP_API std::vector<std::string> list_plugins();

/// Says how to get a plugin; part of the error message if none is found.
LOCKSTEP_API std::string how_to_get_a_plugin();

/// Returns whether this machine has TPU chips, judged by the device files of their drivers.
bool has_tpu_chips();

}  // namespace lockstep::xla

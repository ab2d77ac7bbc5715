#pragma once

#include "tools/print_result.h"

namespace lockstep::tools {

/// Whether the process of the last attempt of a run, of which run.json says that it is running, is gone: the run is
/// lost. On another host nobody knows: then it is not.
bool is_process_gone(const Json& whole);

}  // namespace lockstep::tools

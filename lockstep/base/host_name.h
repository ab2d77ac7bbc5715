#pragma once

#include <string>

#include "lockstep/api.h"

namespace lockstep {

/// The name of this machine; "unknown" where the system does not tell.
LOCKSTEP_API std::string host_name();

}  // namespace lockstep

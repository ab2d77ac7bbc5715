#pragma once

#include <string>

#include "lockstep/api.h"

namespace lockstep {

/// Sets an environment variable of this process, for libraries that read it. Other threads may call `getenv` meanwhile
/// and keep what it returned: nothing that they may be reading is changed or freed. (glibc before 2.41 frees the list
/// of variables when `setenv` adds one.) Threads that change the environment by other functions must not do so
/// meanwhile.
LOCKSTEP_API void set_process_variable(const std::string& name, const std::string& value);

}  // namespace lockstep

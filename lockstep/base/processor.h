#pragma once

#include "lockstep/api.h"

/// What depends on the processor. CMake chooses processor_x86_64.cpp, processor_arm64.cpp or processor_other.cpp.
namespace lockstep::detail {

/// Tells the core that this thread spins: the other hardware thread of the core, or the bus, gets its share.
LOCKSTEP_API void relax_core();

/// Whether this is a 64-bit Arm processor.
bool is_arm64();

}  // namespace lockstep::detail

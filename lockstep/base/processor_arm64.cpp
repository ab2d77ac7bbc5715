#include "lockstep/base/processor.h"

namespace lockstep::detail {

void relax_core() { asm volatile("yield" ::: "memory"); }

bool is_arm64() { return true; }

}  // namespace lockstep::detail

#include "lockstep/base/processor.h"

namespace lockstep::detail {

void relax_core() {}

bool is_arm64() { return false; }

}  // namespace lockstep::detail

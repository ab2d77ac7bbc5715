#include "lockstep/xla/precision.h"

#include <ATen/Context.h>

namespace lockstep::xla {

bool uses_full_precision() { return !at::globalContext().allowTF32CuBLAS(); }

}  // namespace lockstep::xla

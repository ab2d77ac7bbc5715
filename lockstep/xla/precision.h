#pragma once

#include "lockstep/api.h"

namespace lockstep::xla {

/// Whether products of float32 keep full precision. Otherwise TPUs round operands to bfloat16 and GPUs to TF32, which
/// is several times as fast. LibTorch's own switch (`at::globalContext().setAllowTF32CuBLAS`,
/// `setFloat32MatmulPrecision`) decides: full precision unless it allows less.
LOCKSTEP_API bool uses_full_precision();

}  // namespace lockstep::xla

#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include "lockstep/api.h"

namespace lockstep {

/// Returns the usual name of a dtype: "float32", "int64", "bool", "bfloat16", ... .
LOCKSTEP_API std::string dtype_name(c10::ScalarType type);

}  // namespace lockstep

#pragma once

#include <string_view>

#include <c10/core/ScalarType.h>

#include "lockstep/api.h"

namespace lockstep::comm {

/// Returns the usual name of a dtype, for example "float32" or "bfloat16".
LOCKSTEP_API std::string_view type_name(at::ScalarType type);

}  // namespace lockstep::comm

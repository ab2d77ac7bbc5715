#pragma once

#include <string>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep {

/// The text as a JSON string, in quotes. Control characters are escaped; bytes that are no UTF-8 become U+FFFD.
LOCKSTEP_API std::string json_quoted(std::string_view text);

}  // namespace lockstep

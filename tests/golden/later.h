#pragma once

#include <string>

#include "tests/golden/harness.h"

namespace lockstep::golden {

/// Returns what a case waits for because no strategy or call of today can answer it, or "".
std::string waits_for(const Case& test_case);

}  // namespace lockstep::golden

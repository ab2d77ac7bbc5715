#pragma once

#include "tests/golden/harness.h"

namespace lockstep::golden::drivers::contexts {

/// Runs what the name of a `nesting` case describes.
Json run_nesting(const Case& test_case);

}  // namespace lockstep::golden::drivers::contexts

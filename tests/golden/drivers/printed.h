#pragma once

#include "tests/golden/harness.h"

namespace lockstep::golden::drivers::values {

/// Prints the value that a `printed` case names, in both forms. What the name leaves open (components, enumerators) is
/// read from the printed form of the case.
Json printed(const Case& test_case);

/// Lists the enumerators of the type that an `enum` case names.
Json enumeration(const Case& test_case);

}  // namespace lockstep::golden::drivers::values

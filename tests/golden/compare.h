#pragma once

#include <optional>
#include <string>

#include "tests/golden/harness.h"

namespace lockstep::golden {

/// Returns why lockstep's answer is not TensorFlow's, or nothing where it is.
///
/// Numbers agree within the tolerances of data/README.md; dtypes, shapes and whole numbers exactly. Errors agree when
/// lockstep's type stands for Python's (a table in compare.cpp); where Python's is an accident, any clear error does. A
/// call that does not compile agrees with every error.
std::optional<std::string> mismatch(const Case& test_case, const Outcome& outcome);

/// Returns where two values differ, or nothing; `tolerance` is that of plain numbers and of float32 data.
std::optional<std::string> mismatch(const Json& expected, const Json& actual, double tolerance = 1e-6);

/// Returns whether people can understand the error: a LibTorch error, or a message in lockstep's form.
bool is_clear_error(const Outcome& outcome);

}  // namespace lockstep::golden

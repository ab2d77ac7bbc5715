#pragma once

#include <optional>

#include "tools/print_result.h"

namespace lockstep::tools {

/// A number as JSON: "NaN", "Infinity" or "-Infinity" where it is not finite.
Json json_number(double value);

/// The number of a JSON value, those texts included. Nothing for other values.
std::optional<double> number_of(const Json& value);

}  // namespace lockstep::tools

#pragma once

#include <string>

#include "lockstep/xla/graph/node.h"

/// Inside: numbers in MLIR's spelling. Those of float dtypes are written as bits, so that all are exact, infinities and
/// NaN too.
namespace lockstep::xla {

std::string float_literal(double value, Dtype dtype);
std::string integer_literal(int64_t value, Dtype dtype);
std::string number_literal(const Node& number);
/// Of any dtype; beyond the range of an integer dtype its end.
std::string literal(double value, Dtype dtype);

/// What leaves a reduction of `kind` as it is.
std::string neutral_literal(const char* kind, Dtype dtype);

}  // namespace lockstep::xla

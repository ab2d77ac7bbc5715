#pragma once

#include <string>

#include "lockstep/xla/graph/node.h"

/// Internal: numbers as MLIR text. Floating point is written as bits, so that every value is exact, infinities and NaN
/// included.
namespace lockstep::xla {

std::string float_literal(double value, Dtype dtype);
std::string integer_literal(int64_t value, Dtype dtype);
std::string number_literal(const Node& number);
/// Of any dtype. Values out of the range of an integer dtype become its lowest or highest value.
std::string literal(double value, Dtype dtype);

/// The neutral element of a reduction.
std::string neutral_literal(Combiner combiner, Dtype dtype);

}  // namespace lockstep::xla

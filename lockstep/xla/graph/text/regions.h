#pragma once

#include <string>
#include <string_view>

#include "lockstep/xla/graph/node.h"

/// Inside: the small functions on elements that some operations are given, and what they are made of.
namespace lockstep::xla {

/// Combines two elements: "add", ..., or "update", which takes the second.
std::string combining_region(std::string_view kind, Dtype dtype);

/// Whether the first of two elements comes before the second in a sort that carries indices along.
std::string sorting_region(std::string_view order, Dtype dtype);

/// Of two pairs of value and position the one with the greater value, among equals that with the lower position.
std::string greater_pair_region(Dtype dtype);

/// Whether the first of two elements is kept as the maximum.
std::string keeping_region(Dtype dtype);

/// How elements of a dtype are compared: FLOAT, SIGNED or UNSIGNED.
const char* comparison(Dtype dtype);

}  // namespace lockstep::xla

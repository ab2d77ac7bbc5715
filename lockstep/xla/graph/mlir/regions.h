#pragma once

#include <string>

#include "lockstep/xla/graph/op.h"
#include "lockstep/xla/graph/types.h"

/// Internal: the regions of StableHLO operations, which are functions of single elements.
namespace lockstep::xla {

/// Combines two elements.
std::string combining_region(Combiner combiner, Dtype dtype);

/// Whether the first of two elements comes before the second, in a sort that carries indices along.
std::string sorting_region(SortOrder order, Dtype dtype);

/// Of two pairs of value and position, returns the one with the greater value; of equal values, the lower position.
std::string greater_pair_region(Dtype dtype);

/// Whether the first of two elements is selected as the maximum.
std::string selecting_region(Dtype dtype);

/// StableHLO's compare_type of a dtype: FLOAT, SIGNED or UNSIGNED.
const char* compare_type(Dtype dtype);

}  // namespace lockstep::xla

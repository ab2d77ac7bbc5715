#pragma once

#include <vector>

#include "lockstep/state/state.h"
#include "tools/print_result.h"

namespace lockstep::tools {

/// One object for each name whose values differ: {"name", "difference", ...}, with the largest absolute difference of
/// tensors of numbers. Numbers that differ by at most `tolerance` are equal; nan equals nan.
std::vector<Json> compare(const State& first, const State& second, double tolerance);

}  // namespace lockstep::tools

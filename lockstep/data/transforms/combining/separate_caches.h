#pragma once

#include <vector>

#include "lockstep/data/node.h"

namespace lockstep::data::detail {

/// Internal: for the inputs of a node that combines datasets. Caches of different inputs get different numbers, so that
/// what they store has other random numbers, also in graphs that were made before. Those that are in use keep theirs.
void separate_caches(const std::vector<NodePtr>& inputs);

}  // namespace lockstep::data::detail

#pragma once

#include "lockstep/xla/graph/node.h"

namespace lockstep::xla {

/// How many of a node's attributes, from the first on, are sizes: what may change when only a batch size does.
size_t size_attributes(const Node& node);

}  // namespace lockstep::xla

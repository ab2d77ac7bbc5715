#pragma once

#include <vector>

#include "lockstep/xla/engine/execute.h"

namespace lockstep::xla {

/// Executes works that have the same collectives but not the same sizes: what leads to a collective by each replica
/// alone, then the collective by all, and so on to the end. Each new set of sizes is compiled.
void execute_apart(std::vector<Work>& works);

}  // namespace lockstep::xla

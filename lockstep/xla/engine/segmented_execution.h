#pragma once

#include <vector>

#include "lockstep/xla/engine/pending_work.h"

namespace lockstep::xla {

/// Executes work of replicas that has equal collectives but different sizes. Segments between collectives are programs
/// of each replica alone; each collective is a program of all. Each new combination of sizes is compiled.
void execute_in_segments(std::vector<PendingWork>& works);

}  // namespace lockstep::xla

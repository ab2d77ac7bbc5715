#pragma once

#include <vector>

#include "lockstep/xla/engine/pending_work.h"

namespace lockstep::xla {

/// Executes the work of all replicas in a run as one padded program, if an earlier run of the same operations had other
/// sizes and the settings of the run allow it. Returns false if nothing was executed: sizes have not changed, they are
/// the largest so far, a program for them exists, or masks cannot give the same values (graph/pad_trace.h), which is
/// logged. Throws ValueError if the run allows no other sizes.
bool execute_padded(std::vector<PendingWork>& works);

/// Whether the same operations have been executed in a run with other sizes, and smaller ones can be padded.
bool is_known_at_other_sizes(const std::vector<PendingWork>& works);

}  // namespace lockstep::xla

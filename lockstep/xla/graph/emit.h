#pragma once

#include <string>

#include "lockstep/xla/graph/emit_options.h"
#include "lockstep/xla/graph/trace.h"

namespace lockstep::xla {

/// The trace as a StableHLO module. Its parameters are the trace's arguments in order, then one float64 vector and one
/// int64 vector of all numbers that are arguments, in the order of the trace; an empty vector is left out. Layouts are
/// written for the Shardy partitioner.
LOCKSTEP_API std::string emit(const Trace& trace, const EmitOptions& options);

}  // namespace lockstep::xla

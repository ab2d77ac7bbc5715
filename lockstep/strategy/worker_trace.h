#pragma once

#include "lockstep/base/trace/trace_options.h"

namespace lockstep::detail {

class Workers;

/// Starts a trace of this process. With several workers it has the number of this worker and the clock of worker 0.
void start_trace(const Workers* workers, const TraceOptions& options);

/// Does so as LOCKSTEP_TRACE says, once for each process.
void start_trace_of_environment(const Workers* workers);

}  // namespace lockstep::detail

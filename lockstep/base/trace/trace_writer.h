#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/base/trace/trace_options.h"
#include "lockstep/base/trace/trace_worker.h"

/// Writes spans (trace.h) of some steps to `trace_worker<N>.json` (worker_file.h).
namespace lockstep::trace {

/// A text that no other call returns.
LOCKSTEP_API std::string new_trace_job();
LOCKSTEP_API void set_trace_worker(const TraceWorker& worker);

/// Reads `steps:FIRST-LAST[,FOLDER]`, the form of LOCKSTEP_TRACE.
LOCKSTEP_API TraceOptions parse_trace(const std::string& text);

/// Begins to trace. The file is made when the first step of the range begins; it is complete when the last one has
/// ended, or the process ends. ValueError where the range has passed or the folder cannot be written; ContextError
/// while another trace is waited for or written.
LOCKSTEP_API void start_trace(const TraceOptions& options);

/// As LOCKSTEP_TRACE says, where it is set; only the first call of a process has an effect. Returns whether it is set.
LOCKSTEP_API bool start_trace_of_environment();

/// Whether a trace is waited for or written.
LOCKSTEP_API bool is_tracing();

/// Ends the trace with what there is, where one is waited for or written.
LOCKSTEP_API void finish_trace();

}  // namespace lockstep::trace

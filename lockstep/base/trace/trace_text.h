#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/trace/trace_kernels.h"
#include "lockstep/base/trace/trace_lane.h"
#include "lockstep/base/trace/trace_worker.h"

/// Chrome's trace events as text: JSON objects in one line.
namespace lockstep::trace::detail {

/// Sets `text` to the event of a span of that lane.
void set_event_text(const TraceEvent& event, const TraceWorker& worker, int lane, std::string& text);

/// Sets `text` to the event of a kernel.
void set_kernel_text(const KernelEvent& kernel, const TraceWorker& worker, std::string& text);

/// The row of the stream that a kernel ran on.
int row_of(const KernelEvent& kernel);

/// What viewers show about a lane or, with lane 0, about the process; `arguments` are members of a JSON object.
std::string metadata_text(std::string_view what, const TraceWorker& worker, int lane, const std::string& arguments);

/// The process of the trace: its name, its job and the number of workers of that job.
std::string process_text(const TraceWorker& worker);

}  // namespace lockstep::trace::detail

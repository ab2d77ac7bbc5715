#include "lockstep/strategy/worker_trace.h"

#include <chrono>

#include "lockstep/base/env.h"
#include "lockstep/base/trace/trace_writer.h"
#include "lockstep/comm/job/clock_offset.h"
#include "lockstep/strategy/workers.h"

namespace lockstep::detail {
namespace {

void identify_for_trace(const Workers* workers) {
  if (workers == nullptr) return;
  trace::set_trace_worker({.index = workers->index(),
                           .clock_offset = comm::clock_offset(workers->job()),
                           .num_workers = workers->count(),
                           .job = workers->job().get(kTraceJobKey, std::chrono::seconds(30))});
}

}  // namespace

void start_trace(const Workers* workers, const TraceOptions& options) {
  identify_for_trace(workers);
  trace::start_trace(options);
}

void start_trace_of_environment(const Workers* workers) {
  if (!env::given("LOCKSTEP_TRACE")) return;
  identify_for_trace(workers);
  trace::start_trace_of_environment();
}

}  // namespace lockstep::detail

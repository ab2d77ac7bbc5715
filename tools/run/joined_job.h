#pragma once

#include <string>

#include "tools/run/job_folder.h"
#include "tools/run/run_job.h"
#include "tools/run/run_watchdog.h"

namespace lockstep::tools {

/// Joins the launcher of an elastic job and runs workers for it until the job ends. SIGTERM preempts the workers here;
/// the job goes on without them.
JobResult run_joined(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder);

}  // namespace lockstep::tools

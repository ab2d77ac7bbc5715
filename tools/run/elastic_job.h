#pragma once

#include <string>

#include "tools/run/job_folder.h"
#include "tools/run/run_job.h"
#include "tools/run/run_watchdog.h"

namespace lockstep::tools {

/// Runs an elastic job to its end: issues its views, replaces lost workers while restarts are left, and takes in
/// workers of launchers that join. Prints, on standard error, each loss and how the job goes on.
JobResult run_elastic(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder);

}  // namespace lockstep::tools

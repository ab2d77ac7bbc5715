#pragma once

#include <memory>

#include "lockstep/api.h"
#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// Joins a job. Returns when all workers have joined. CollectiveError names the address that was tried, what failed,
/// who has joined and who has not; c10::ValueError names what is wrong with the options (a loopback address among
/// several hosts).
LOCKSTEP_API std::shared_ptr<Job> join_job(const JobOptions& options);

/// Leaves all jobs of this process, which exits with `status`; other than 0 it is a failure of the jobs. Every exit of
/// the process does so. Before that, for those whose own work at exit waits for other workers.
LOCKSTEP_API void leave_all_jobs(int status);

}  // namespace lockstep::comm

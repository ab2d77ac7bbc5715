#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/job/job.h"

namespace lockstep::comm::job {

/// Raises ValueError for what is wrong with the options, as far as one process can see it.
void check(const JobOptions& options);

/// Returns how messages name each worker: `worker 1 (10.0.0.2:8888)`, without brackets where no address is known.
std::vector<std::string> worker_names(const JobOptions& options);

/// Returns the same for one worker whose address the job has seen.
std::string worker_name(const JobOptions& options, int worker, const std::string& seen_address);

/// Returns "1.5 s".
std::string seconds(std::chrono::milliseconds time);

}  // namespace lockstep::comm::job

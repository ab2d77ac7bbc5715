#include "lockstep/comm/job/job.h"

#include "lockstep/comm/job/socket.h"

namespace lockstep::comm {

std::vector<std::string> Job::all_gather(const std::string& key, const std::string& value,
                                         std::chrono::milliseconds timeout) {
  const auto deadline = job::deadline_in(timeout);
  set(key + "/" + std::to_string(worker()), value);
  std::vector<std::string> values;
  for (int i = 0; i < num_workers(); ++i) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - job::Clock::now());
    values.push_back(get(key + "/" + std::to_string(i), left));
  }
  return values;
}

}  // namespace lockstep::comm

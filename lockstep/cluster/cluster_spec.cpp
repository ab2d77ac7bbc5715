#include "lockstep/cluster/cluster_spec.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::map<int, std::string> numbered(const auto& addresses) {
  std::map<int, std::string> by_index;
  for (const std::string& address : addresses) by_index.emplace_hint(by_index.end(), by_index.size(), address);
  return by_index;
}

std::string names_of(const auto& map) {
  std::string names;
  for (const auto& [name, value] : map) names += c10::str(names.empty() ? "" : ", ", name);
  return names.empty() ? "none" : names;
}

}  // namespace

TaskAddresses::TaskAddresses(std::initializer_list<std::string> addresses) : by_index_(numbered(addresses)) {}
TaskAddresses::TaskAddresses(const std::vector<std::string>& addresses) : by_index_(numbered(addresses)) {}
TaskAddresses::TaskAddresses(std::initializer_list<std::pair<const int, std::string>> by_index)
    : TaskAddresses(std::map<int, std::string>(by_index)) {}

TaskAddresses::TaskAddresses(std::map<int, std::string> by_index) : by_index_(std::move(by_index)) {
  LOCKSTEP_CHECK_VALUE(by_index_.empty() || by_index_.begin()->first >= 0,
                       "[ClusterSpec] tasks are numbered from 0: index=", by_index_.begin()->first);
}

bool TaskAddresses::is_dense() const {
  return by_index_.empty() || by_index_.rbegin()->first + 1 == static_cast<int>(by_index_.size());
}

ClusterSpec::ClusterSpec(std::map<std::string, TaskAddresses> jobs) : jobs_(std::move(jobs)) {
  std::erase_if(jobs_, [](const auto& job) { return job.second.by_index().empty(); });
}

ClusterSpec::ClusterSpec(std::initializer_list<std::pair<const std::string, TaskAddresses>> jobs)
    : ClusterSpec(std::map<std::string, TaskAddresses>(jobs)) {}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [name, tasks] : jobs_) names.push_back(name);
  return names;
}

const std::map<int, std::string>& ClusterSpec::tasks_of(const char* operation, const std::string& job) const {
  const auto found = jobs_.find(job);
  LOCKSTEP_CHECK_VALUE(found != jobs_.end(), "[", operation, "] there is no such job in the cluster: job=\"", job,
                       "\", jobs: ", names_of(jobs_));
  return found->second.by_index();
}

int ClusterSpec::num_tasks(const std::string& job) const { return static_cast<int>(tasks_of("num_tasks", job).size()); }

std::vector<int> ClusterSpec::task_indices(const std::string& job) const {
  std::vector<int> indices;
  for (const auto& [index, address] : tasks_of("task_indices", job)) indices.push_back(index);
  return indices;
}

std::string ClusterSpec::task_address(const std::string& job, int index) const {
  const auto& tasks = tasks_of("task_address", job);
  const auto found = tasks.find(index);
  LOCKSTEP_CHECK_VALUE(found != tasks.end(), "[task_address] there is no such task in the job: job=\"", job,
                       "\", index=", index, ", indices: ", names_of(tasks));
  return found->second;
}

std::vector<std::optional<std::string>> ClusterSpec::job_tasks(const std::string& job) const {
  const auto& tasks = tasks_of("job_tasks", job);
  std::vector<std::optional<std::string>> addresses(tasks.rbegin()->first + 1);
  for (const auto& [index, address] : tasks) addresses[index] = address;
  return addresses;
}

}  // namespace lockstep

#include "lockstep/cluster/cluster_resolver.h"

#include "lockstep/base/error.h"
#include "lockstep/device/logical_devices.h"

namespace lockstep {

ClusterResolver::~ClusterResolver() = default;

std::map<std::string, int> ClusterResolver::num_accelerators() const {
  std::map<std::string, int> counts;
  for (const LogicalDevice& device : list_logical_devices()) {
    if (device.type != "CPU") ++counts[device.type];
  }
  return counts;
}

namespace detail {

std::string master_url(const std::string& address, const std::string& rpc_layer) {
  return rpc_layer.empty() ? address : rpc_layer + "://" + address;
}

std::string master_of_task(const ClusterResolver& resolver, const ClusterSpec& cluster, const TaskType& task_type,
                           TaskId task_id, const std::string& rpc_layer) {
  const auto jobs = cluster.jobs();
  if (jobs.empty() || (jobs.size() == 1 && cluster.job_tasks(jobs[0]).size() == 1)) return "";
  const TaskType type = task_type ? task_type : resolver.task_type();
  LOCKSTEP_CHECK_VALUE(type.has_value(), "[master] this process has no task type: give one, or call master(type, id)");
  const TaskId id = task_id ? task_id : resolver.task_id();
  LOCKSTEP_CHECK_VALUE(id.has_value(), "[master] this process has no task index: give one, or call master(type, id)");
  return master_url(cluster.task_address(*type, *id), rpc_layer.empty() ? resolver.rpc_layer() : rpc_layer);
}

std::vector<ClusterFact> task_facts(const ClusterSpec& cluster, const std::string& source) {
  std::vector<ClusterFact> facts;
  for (const auto& [job, tasks] : cluster.as_dict()) {
    for (const auto& [index, address] : tasks.by_index()) {
      facts.push_back({c10::str(job, " ", index), address, address.empty() ? "not said by the launcher" : source});
    }
  }
  return facts;
}

}  // namespace detail
}  // namespace lockstep

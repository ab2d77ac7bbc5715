#include "lockstep/cluster/fixed_resolver.h"

#include <utility>

namespace lockstep {

FixedClusterResolver::FixedClusterResolver(Resolution resolution) : resolution_(std::move(resolution)) {}

std::map<std::string, int> FixedClusterResolver::num_accelerators() const {
  return resolution_.num_accelerators ? *resolution_.num_accelerators : ClusterResolver::num_accelerators();
}

std::string FixedClusterResolver::do_master(const TaskType& task_type, TaskId task_id,
                                            const std::string& rpc_layer) const {
  const TaskType type = task_type ? task_type : resolution_.task_type;
  const TaskId id = task_id ? task_id : resolution_.task_id;
  if (!resolution_.cluster || !type || !id) return "";
  return detail::master_url(resolution_.cluster.task_address(*type, *id),
                            rpc_layer.empty() ? resolution_.rpc_layer : rpc_layer);
}

}  // namespace lockstep

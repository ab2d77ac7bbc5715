#include "lockstep/cluster/resolvers/sagemaker.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cluster/json_text.h"
#include "lockstep/cluster/launcher.h"

namespace lockstep {
namespace {

std::string sagemaker_text(const Environment& variables, const char* name) {
  const auto text = variables.get(name);
  LOCKSTEP_CHECK_CONTEXT(text.has_value(), "[SageMakerClusterResolver] the variable is not set: name=", name,
                         "; this is for programs inside of a SageMaker training job");
  return *text;
}

std::vector<std::string> sorted_hosts(const std::string& text) {
  std::vector<std::string> hosts;
  if (text.empty()) return hosts;
  const detail::Json list = detail::parse_json("SM_HOSTS", text);
  LOCKSTEP_CHECK_VALUE(list.is_array(), "[SM_HOSTS] the variable must be a list of hosts: SM_HOSTS=", text);
  for (const detail::Json& host : list) {
    LOCKSTEP_CHECK_VALUE(host.is_string(), "[SM_HOSTS] a host must be a text: host=", host.dump());
    hosts.push_back(host);
  }
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

Resolution resolve(const SageMakerOptions& options) {
  const std::vector<std::string> hosts = sorted_hosts(sagemaker_text(options.variables, "SM_HOSTS"));
  const std::string current = sagemaker_text(options.variables, "SM_CURRENT_HOST");
  const auto own = std::find(hosts.begin(), hosts.end(), current);
  Resolution result;
  if (own != hosts.end()) {
    std::vector<std::string> addresses;
    for (const std::string& host : hosts) addresses.push_back(detail::host_and_port(host, options.port));
    result.cluster = ClusterSpec({{"worker", addresses}});
    result.task_type = "worker";
    result.task_id = static_cast<int>(own - hosts.begin());
  }
  if (options.task_type) result.task_type = options.task_type;
  if (options.task_id) result.task_id = options.task_id;
  result.rpc_layer = options.rpc_layer;
  result.environment = options.environment;
  const std::string argument = "argument of the resolver";
  if (result.task_type) {
    result.facts.push_back({"task type", *result.task_type, options.task_type ? argument : "all hosts are workers"});
  }
  if (result.task_id) {
    result.facts.push_back(
        {"task id", std::to_string(*result.task_id), options.task_id ? argument : "SM_CURRENT_HOST in SM_HOSTS"});
  }
  const auto tasks = detail::task_facts(result.cluster, "SM_HOSTS + port");
  result.facts.insert(result.facts.end(), tasks.begin(), tasks.end());
  return result;
}

}  // namespace

SageMakerClusterResolver::SageMakerClusterResolver(const SageMakerOptions& options)
    : FixedClusterResolver(resolve(options)) {}

std::string SageMakerClusterResolver::do_master(const TaskType& task_type, TaskId task_id,
                                                const std::string& rpc_layer) const {
  return detail::master_of_task(*this, cluster_spec(), task_type, task_id, rpc_layer);
}

}  // namespace lockstep

#include "lockstep/cluster/resolvers/simple.h"

#include <utility>

namespace lockstep {

SimpleClusterResolver::SimpleClusterResolver(ClusterSpec cluster, SimpleOptions options)
    : cluster_(std::move(cluster)), options_(std::move(options)) {}

std::string SimpleClusterResolver::do_master(const TaskType& task_type, TaskId task_id,
                                             const std::string& rpc_layer) const {
  const std::string address = task_type && task_id ? cluster_.task_address(*task_type, *task_id) : options_.master;
  return detail::master_url(address, rpc_layer.empty() ? options_.rpc_layer : rpc_layer);
}

std::vector<ClusterFact> SimpleClusterResolver::facts() const {
  const std::string source = "argument of the resolver";
  std::vector<ClusterFact> facts;
  if (options_.task_type) facts.push_back({"task type", *options_.task_type, source});
  if (options_.task_id) facts.push_back({"task id", std::to_string(*options_.task_id), source});
  const auto tasks = detail::task_facts(cluster_, source);
  facts.insert(facts.end(), tasks.begin(), tasks.end());
  return facts;
}

}  // namespace lockstep

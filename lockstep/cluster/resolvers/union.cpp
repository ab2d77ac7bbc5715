#include "lockstep/cluster/resolvers/union.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TaskAddresses united(const std::string& job, const TaskAddresses& first, const TaskAddresses& second) {
  std::map<int, std::string> tasks = first.by_index();
  const bool are_lists = first.is_dense() && second.is_dense();
  for (const auto& [index, address] : second.by_index()) {
    const int place = are_lists ? static_cast<int>(tasks.size()) : index;
    LOCKSTEP_CHECK_VALUE(tasks.emplace(place, address).second,
                         "[UnionClusterResolver] two resolvers have the same task: job=\"", job, "\", index=", place,
                         "; number the tasks of sparse jobs differently");
  }
  return tasks;
}

}  // namespace

UnionClusterResolver::UnionClusterResolver(std::vector<std::shared_ptr<ClusterResolver>> resolvers,
                                           UnionOptions options)
    : resolvers_(std::move(resolvers)), options_(std::move(options)) {
  LOCKSTEP_CHECK_VALUE(!resolvers_.empty(), "[UnionClusterResolver] at least one resolver is needed: none was given");
  LOCKSTEP_CHECK_VALUE(std::count(resolvers_.begin(), resolvers_.end(), nullptr) == 0,
                       "[UnionClusterResolver] every resolver must be one: a null pointer was given");
}

ClusterSpec UnionClusterResolver::cluster_spec() const {
  std::map<std::string, TaskAddresses> jobs;
  for (const auto& resolver : resolvers_) {
    for (const auto& [job, tasks] : resolver->cluster_spec().as_dict()) {
      const auto [place, is_new] = jobs.emplace(job, tasks);
      if (!is_new) place->second = united(job, place->second, tasks);
    }
  }
  return jobs;
}

TaskType UnionClusterResolver::task_type() const {
  return options_.task_type ? options_.task_type : resolvers_.front()->task_type();
}

TaskId UnionClusterResolver::task_id() const {
  return options_.task_id ? options_.task_id : resolvers_.front()->task_id();
}

std::string UnionClusterResolver::rpc_layer() const {
  return options_.rpc_layer.empty() ? resolvers_.front()->rpc_layer() : options_.rpc_layer;
}

std::string UnionClusterResolver::do_master(const TaskType& task_type, TaskId task_id,
                                            const std::string& rpc_layer) const {
  if (!task_type || !task_id) return resolvers_.front()->master({}, {}, rpc_layer);
  return detail::master_url(cluster_spec().task_address(*task_type, *task_id),
                            rpc_layer.empty() ? this->rpc_layer() : rpc_layer);
}

std::vector<ClusterFact> UnionClusterResolver::facts() const {
  std::vector<ClusterFact> facts;
  for (size_t i = 0; i < resolvers_.size(); ++i) {
    for (ClusterFact fact : resolvers_[i]->facts()) {
      fact.field = c10::str("resolver ", i, ": ", fact.field);
      facts.push_back(std::move(fact));
    }
  }
  return facts;
}

}  // namespace lockstep

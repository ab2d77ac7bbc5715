#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

/// Values that override those of the first resolver.
struct LOCKSTEP_API UnionOptions {
  TaskType task_type{};
  TaskId task_id{};
  std::string rpc_layer{};
};

/// Several clusters as one. Lists of a job are concatenated; where one is sparse, indices are preserved and must
/// differ, else `cluster_spec` throws `c10::ValueError`. All other values are the first resolver's.
class LOCKSTEP_API UnionClusterResolver : public ClusterResolver {
 public:
  /// Throws `c10::ValueError` where there is no resolver, or one is null.
  explicit UnionClusterResolver(std::vector<std::shared_ptr<ClusterResolver>> resolvers, UnionOptions options = {});

  ClusterSpec cluster_spec() const override;
  TaskType task_type() const override;
  TaskId task_id() const override;
  std::string rpc_layer() const override;
  std::string environment() const override { return resolvers_.front()->environment(); }
  std::map<std::string, int> num_accelerators() const override { return resolvers_.front()->num_accelerators(); }
  std::optional<LocalTask> local_task() const override { return resolvers_.front()->local_task(); }
  std::vector<ClusterFact> facts() const override;

 private:
  /// The task's address in the combined cluster where type and index are given, else the first resolver's master.
  std::string do_master(const TaskType& task_type, TaskId task_id, const std::string& rpc_layer) const override;

  std::vector<std::shared_ptr<ClusterResolver>> resolvers_;
  UnionOptions options_;
};

}  // namespace lockstep

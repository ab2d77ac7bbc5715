#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

/// The result of a resolver.
struct LOCKSTEP_API Resolution {
  ClusterSpec cluster{};
  TaskType task_type{};
  TaskId task_id{};
  std::string rpc_layer{};
  std::string environment{};
  std::optional<LocalTask> local_task{};
  /// Nothing: those of this process.
  std::optional<std::map<std::string, int>> num_accelerators{};
  std::vector<ClusterFact> facts{};
};

/// A resolver with a fixed result. Base of most resolvers, which read the environment in their constructors.
class LOCKSTEP_API FixedClusterResolver : public ClusterResolver {
 public:
  explicit FixedClusterResolver(Resolution resolution);

  ClusterSpec cluster_spec() const override { return resolution_.cluster; }
  TaskType task_type() const override { return resolution_.task_type; }
  TaskId task_id() const override { return resolution_.task_id; }
  std::string rpc_layer() const override { return resolution_.rpc_layer; }
  std::string environment() const override { return resolution_.environment; }
  std::map<std::string, int> num_accelerators() const override;
  std::optional<LocalTask> local_task() const override { return resolution_.local_task; }
  std::vector<ClusterFact> facts() const override { return resolution_.facts; }

 private:
  std::string do_master(const TaskType& task_type, TaskId task_id, const std::string& rpc_layer) const override;

  Resolution resolution_;
};

}  // namespace lockstep

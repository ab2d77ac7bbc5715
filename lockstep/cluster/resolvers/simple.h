#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

struct LOCKSTEP_API SimpleOptions {
  /// What `master()` returns without arguments.
  std::string master{};
  TaskType task_type{};
  TaskId task_id{};
  std::string environment{};
  std::map<std::string, int> num_accelerators{};
  std::string rpc_layer{};
};

/// A cluster that the program itself describes.
///
///     SimpleClusterResolver resolver(ClusterSpec({{"worker", {"n1:2222", "n2:2222"}}}),
///                                    {.task_type = "worker", .task_id = 0});
class LOCKSTEP_API SimpleClusterResolver : public ClusterResolver {
 public:
  explicit SimpleClusterResolver(ClusterSpec cluster, SimpleOptions options = {});

  ClusterSpec cluster_spec() const override { return cluster_; }
  TaskType task_type() const override { return options_.task_type; }
  TaskId task_id() const override { return options_.task_id; }
  std::string rpc_layer() const override { return options_.rpc_layer; }
  std::string environment() const override { return options_.environment; }
  std::map<std::string, int> num_accelerators() const override { return options_.num_accelerators; }
  std::vector<ClusterFact> facts() const override;

 private:
  /// The address of the task where type and index are given, else the master of the options.
  std::string do_master(const TaskType& task_type, TaskId task_id, const std::string& rpc_layer) const override;

  ClusterSpec cluster_;
  SimpleOptions options_;
};

}  // namespace lockstep

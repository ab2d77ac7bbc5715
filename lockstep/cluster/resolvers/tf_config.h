#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/environment.h"

namespace lockstep {

/// Values that override TF_CONFIG's fields.
struct LOCKSTEP_API TFConfigOptions {
  TaskType task_type{};
  TaskId task_id{};
  std::string rpc_layer{};
  std::string environment{};
  Environment variables{};
};

/// Reads the variable TF_CONFIG at every call:
///
///     TF_CONFIG='{"cluster": {"worker": ["n1:2222", "n2:2222"]}, "task": {"type": "worker", "index": 0}}'
///
/// Optional fields are "rpc_layer" and "session_master". Not set: no cluster. Every call throws `c10::ValueError` for
/// text that is not JSON and `c10::TypeError` for JSON of another form.
class LOCKSTEP_API TFConfigClusterResolver : public ClusterResolver {
 public:
  explicit TFConfigClusterResolver(TFConfigOptions options = {});

  ClusterSpec cluster_spec() const override;
  TaskType task_type() const override;
  TaskId task_id() const override;
  std::string rpc_layer() const override;
  std::string environment() const override { return options_.environment; }
  std::vector<ClusterFact> facts() const override;

 private:
  /// "session_master" of TF_CONFIG, whatever the task; "" for a cluster of one task; else the task's address.
  std::string do_master(const TaskType& task_type, TaskId task_id, const std::string& rpc_layer) const override;

  TFConfigOptions options_;
};

}  // namespace lockstep

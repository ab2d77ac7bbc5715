#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_spec.h"

namespace lockstep {

/// A value of a cluster and its source, for people: {"worker 1", "n2:8888", "SLURM_STEP_NODELIST + port_base"}.
struct LOCKSTEP_API ClusterFact {
  std::string field{};
  std::string value{};
  std::string source{};

  bool operator==(const ClusterFact&) const = default;
};

/// The index of a task among those that the launcher started on the same machine.
struct LOCKSTEP_API LocalTask {
  int index = 0;
  int num_tasks = 1;

  bool operator==(const LocalTask&) const = default;
};

/// Determines the tasks of a job and which of them this process is. Each kind of launcher has its own in resolvers/;
/// `resolve_cluster` chooses one by the environment.
///
/// Implementations are immutable and may be used from any thread.
class LOCKSTEP_API ClusterResolver {
 public:
  virtual ~ClusterResolver();

  virtual ClusterSpec cluster_spec() const = 0;
  /// Returns this process's job and its number in it; nothing where unknown.
  virtual TaskType task_type() const = 0;
  virtual TaskId task_id() const = 0;
  /// Returns the protocol that addresses are given with, such as "grpc"; "" for none.
  virtual std::string rpc_layer() const = 0;
  /// Returns the kind of installation that the job runs in; "" where unknown.
  virtual std::string environment() const { return ""; }

  /// Returns the address of a task, with the prefix "PROTOCOL://" where there is a protocol. Arguments that are not
  /// given are those of this task. "" where there is no address.
  std::string master(const TaskType& task_type = {}, TaskId task_id = {}, const std::string& rpc_layer = "") const {
    return do_master(task_type, task_id, rpc_layer);
  }

  /// Returns the number of accelerators of each task, by type: {"GPU": 2}. By default those of this process.
  virtual std::map<std::string, int> num_accelerators() const;

  /// Returns this task's index on its machine, where the launcher provides it.
  virtual std::optional<LocalTask> local_task() const { return std::nullopt; }

  /// Returns all known values with their sources.
  virtual std::vector<ClusterFact> facts() const = 0;

 private:
  virtual std::string do_master(const TaskType& task_type, TaskId task_id, const std::string& rpc_layer) const = 0;
};

namespace detail {

/// Returns "PROTOCOL://address", or the bare address where the protocol is "".
std::string master_url(const std::string& address, const std::string& rpc_layer);

/// Returns the master of a task of `cluster` by the rules of TF_CONFIG: "" where there is at most one task, else the
/// task's address. Arguments that are not given are those of the resolver. Throws `c10::ValueError` where the task is
/// unknown.
std::string master_of_task(const ClusterResolver& resolver, const ClusterSpec& cluster, const TaskType& task_type,
                           TaskId task_id, const std::string& rpc_layer);

/// Returns a fact for each task of a cluster: field "worker 1", value its address.
std::vector<ClusterFact> task_facts(const ClusterSpec& cluster, const std::string& source);

}  // namespace detail
}  // namespace lockstep

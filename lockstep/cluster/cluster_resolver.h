#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_spec.h"
#include "lockstep/cluster/multi_worker.h"

namespace lockstep {

/// Where a value of a cluster came from, for people: {"worker 1", "n2:8888", "SLURM_STEP_NODELIST + port_base"}.
struct LOCKSTEP_API ClusterFact {
  std::string field{};
  std::string value{};
  std::string source{};

  bool operator==(const ClusterFact&) const = default;
};

/// A task's place among those that the launcher started on the same machine.
struct LOCKSTEP_API LocalTask {
  int index = 0;
  int num_tasks = 1;

  bool operator==(const LocalTask&) const = default;
};

/// Finds out who takes part in a job and which task this process is. Each kind of launcher has its own in resolvers/;
/// `resolve_cluster` picks the one that fits the environment.
///
/// Implementations are immutable and may be used from any thread.
class LOCKSTEP_API ClusterResolver {
 public:
  virtual ~ClusterResolver();

  virtual ClusterSpec cluster_spec() const = 0;
  /// Returns this process's job and its number in it; nothing where it is not known.
  virtual TaskType task_type() const = 0;
  virtual TaskId task_id() const = 0;
  /// Returns the protocol that addresses are given with, such as "grpc"; "" for none.
  virtual std::string rpc_layer() const = 0;
  /// Returns what kind of installation the job runs in; "" where nobody said.
  virtual std::string environment() const { return ""; }

  /// Returns where a task is reached: its address, with "PROTOCOL://" before it where there is a protocol. What is not
  /// given is this task's own. "" where there is nothing to reach.
  std::string master(const TaskType& task_type = {}, TaskId task_id = {}, const std::string& rpc_layer = "") const {
    return do_master(task_type, task_id, rpc_layer);
  }

  /// Returns how many accelerators each task has, by type: {"GPU": 2}. Unless the resolver knows better, those of this
  /// process.
  virtual std::map<std::string, int> num_accelerators() const;

  /// Returns this task's place on its machine, where the launcher says it.
  virtual std::optional<LocalTask> local_task() const { return std::nullopt; }

  /// Returns what is known, and from where.
  virtual std::vector<ClusterFact> facts() const = 0;

 private:
  virtual std::string do_master(const TaskType& task_type, TaskId task_id, const std::string& rpc_layer) const = 0;
};

namespace detail {

/// Returns "PROTOCOL://address", or the bare address where the protocol is "".
std::string master_url(const std::string& address, const std::string& rpc_layer);

/// Returns where a task of `cluster` is reached, as TF_CONFIG has it: "" where there is at most one task, else the
/// task's address. What is not given is taken from the resolver. Throws `c10::ValueError` where that does not know it
/// either.
std::string master_of_task(const ClusterResolver& resolver, const ClusterSpec& cluster, const TaskType& task_type,
                           TaskId task_id, const std::string& rpc_layer);

/// Returns a fact for each task of a cluster: field "worker 1", value its address.
std::vector<ClusterFact> task_facts(const ClusterSpec& cluster, const std::string& source);

}  // namespace detail
}  // namespace lockstep

#pragma once

#include <optional>
#include <string>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_spec.h"

/// Roles in a cluster, by rules that are the same for all tasks: the chief, the numbers of workers, the leader.
///
/// Task types are "chief", "worker", "evaluator" and "ps". The workers that train together are the chief, if there is
/// one, and then the tasks of "worker". An evaluator runs alone and may be missing in the cluster.
///
/// Every function throws `c10::ValueError` for an invalid task (an unknown type, a type or index that the cluster does
/// not have) and for clusters with other jobs, or with more than one chief or evaluator.
namespace lockstep {

class ClusterResolver;

/// Throws unless the task is valid. A task without type is valid: a process outside of the cluster.
LOCKSTEP_API void validate_task(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id);

/// Returns whether the task writes checkpoints and summaries: the chief, an evaluator, or worker 0 where no job is
/// "chief".
LOCKSTEP_API bool is_chief(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id);

/// Returns the number of a job's tasks, 0 for a job that is not in the cluster.
LOCKSTEP_API int task_count(const ClusterSpec& cluster, const TaskType& task_type);

/// Returns how many workers train together with the task.
LOCKSTEP_API int worker_count(const ClusterSpec& cluster, const TaskType& task_type);

/// Returns the task's number among those workers.
LOCKSTEP_API int id_in_cluster(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id);

/// Returns the device string of the task that leads collectives: "/job:chief/replica:0/task:0" or worker 0's; "" for an
/// evaluator and an empty cluster.
LOCKSTEP_API std::string collective_leader(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id);

/// Returns the device string of the task that coordinates: the first ps, else the first chief, else the first worker;
/// "" for an empty cluster.
LOCKSTEP_API std::string coordination_leader(const ClusterSpec& cluster);

/// What a worker needs to join the others.
struct LOCKSTEP_API WorkerPlace {
  /// Number among the workers, from 0, as `id_in_cluster`.
  int index = 0;
  int num_workers = 1;
  bool is_chief = true;
  /// "host:port" of worker 0, to which all others connect.
  std::string coordinator{};

  bool operator==(const WorkerPlace&) const = default;
};

/// Returns this process's place among the workers, or nothing where it is alone: the resolver has no cluster, or the
/// process is an evaluator that the cluster does not list.
///
/// Throws `c10::ValueError` where the resolver does not know its task, or the task is no worker.
LOCKSTEP_API std::optional<WorkerPlace> worker_place(const ClusterResolver& resolver);

}  // namespace lockstep

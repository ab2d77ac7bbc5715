#include "lockstep/cluster/multi_worker.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {
namespace {

constexpr const char* kChief = "chief";
constexpr const char* kWorker = "worker";
constexpr const char* kEvaluator = "evaluator";
constexpr const char* kParameterServer = "ps";
constexpr std::array<std::string_view, 4> kTaskTypes{kChief, kWorker, kEvaluator, kParameterServer};

bool is_task_type(const std::string& name) { return std::count(kTaskTypes.begin(), kTaskTypes.end(), name) > 0; }

std::string shown(const TaskType& task_type) { return task_type ? "\"" + *task_type + "\"" : "none"; }

std::string device_of_first(const char* job) { return c10::str("/job:", job, "/replica:0/task:0"); }

void validate_type(const ClusterSpec& cluster, const TaskType& task_type) {
  if (!task_type) return;
  LOCKSTEP_CHECK_VALUE(is_task_type(*task_type),
                       "[cluster] a task's type must be chief, worker, evaluator or ps: task_type=", shown(task_type));
  LOCKSTEP_CHECK_VALUE(cluster.has_job(*task_type) || task_type == kEvaluator,
                       "[cluster] the task's type must be a job of the cluster: task_type=", shown(task_type),
                       ", cluster=", cluster.to_json());
}

void validate_jobs(const ClusterSpec& cluster) {
  for (const std::string& job : cluster.jobs()) {
    LOCKSTEP_CHECK_VALUE(is_task_type(job), "[cluster] jobs must be chief, worker, evaluator or ps: job=\"", job,
                         "\", cluster=", cluster.to_json());
  }
}

void validate_single(const ClusterSpec& cluster, const char* job) {
  LOCKSTEP_CHECK_VALUE(task_count(cluster, job) <= 1, "[cluster] there must be at most one ", job,
                       ": cluster=", cluster.to_json());
}

}  // namespace

void validate_task(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id) {
  validate_type(cluster, task_type);
  validate_jobs(cluster);
  validate_single(cluster, kChief);
  validate_single(cluster, kEvaluator);
  if (!task_type || !cluster.has_job(*task_type)) return;
  LOCKSTEP_CHECK_VALUE(task_id.has_value(), "[cluster] a task has a type and an index: task_type=", shown(task_type),
                       ", and no index; give the task's number in its job");
  const int num_tasks = cluster.num_tasks(*task_type);
  LOCKSTEP_CHECK_VALUE(*task_id >= 0 && *task_id < num_tasks,
                       "[cluster] the task's index must be below the number of its job's tasks: task_type=",
                       shown(task_type), ", task_id=", *task_id, ", tasks=", num_tasks);
}

bool is_chief(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id) {
  validate_task(cluster, task_type, task_id);
  if (task_type == kChief || task_type == kEvaluator) return true;
  return !cluster.has_job(kChief) && task_type == kWorker && task_id == 0;
}

int task_count(const ClusterSpec& cluster, const TaskType& task_type) {
  return task_type && cluster.has_job(*task_type) ? cluster.num_tasks(*task_type) : 0;
}

int worker_count(const ClusterSpec& cluster, const TaskType& task_type) {
  validate_task(cluster, task_type, 0);
  if (task_type == kEvaluator) return cluster.num_tasks(kEvaluator);
  LOCKSTEP_CHECK_VALUE(task_type == kChief || task_type == kWorker,
                       "[worker_count] the task must be a chief, worker or evaluator: task_type=", shown(task_type));
  return task_count(cluster, kChief) + task_count(cluster, kWorker);
}

int id_in_cluster(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id) {
  validate_task(cluster, task_type, task_id);
  if (task_type == kChief) return 0;
  if (task_type == kWorker) return *task_id + task_count(cluster, kChief);
  LOCKSTEP_CHECK_VALUE(task_type == kEvaluator,
                       "[id_in_cluster] only a chief, worker or evaluator has one: task_type=", shown(task_type));
  LOCKSTEP_CHECK_VALUE(task_id.has_value(), "[id_in_cluster] an evaluator has an index: none was given");
  return *task_id;
}

std::string collective_leader(const ClusterSpec& cluster, const TaskType& task_type, TaskId task_id) {
  if (!cluster) return "";
  validate_task(cluster, task_type, task_id);
  if (task_type == kEvaluator) return "";
  if (cluster.has_job(kChief)) return device_of_first(kChief);
  LOCKSTEP_CHECK_VALUE(cluster.has_job(kWorker), "[collective_leader] a cluster needs a chief or a worker to lead it: ",
                       "cluster=", cluster.to_json());
  return device_of_first(kWorker);
}

std::string coordination_leader(const ClusterSpec& cluster) {
  if (!cluster) return "";
  for (const char* job : {kParameterServer, kChief, kWorker}) {
    if (cluster.has_job(job)) return device_of_first(job);
  }
  LOCKSTEP_THROW(
      c10::ValueError,
      "[coordination_leader] a cluster needs a ps, chief or worker to coordinate it: cluster=", cluster.to_json());
}

std::optional<WorkerPlace> worker_place(const ClusterResolver& resolver) {
  const ClusterSpec cluster = resolver.cluster_spec();
  if (!cluster) return std::nullopt;
  const TaskType task_type = resolver.task_type();
  const TaskId task_id = resolver.task_id();
  LOCKSTEP_CHECK_VALUE(task_type && task_id, "[worker_place] a task of a cluster must know its type and index: ",
                       "task_type=", shown(task_type), ", task_id=", task_id ? std::to_string(*task_id) : "none",
                       R"(; give "task": {"type": ..., "index": ...} in TF_CONFIG, or the resolver's arguments)");
  if (task_type == kEvaluator && !cluster.has_job(kEvaluator)) return std::nullopt;
  WorkerPlace place;
  place.index = id_in_cluster(cluster, task_type, task_id);
  place.num_workers = worker_count(cluster, task_type);
  place.is_chief = is_chief(cluster, task_type, task_id);
  const std::string leader = task_type == kEvaluator ? kEvaluator : cluster.has_job(kChief) ? kChief : kWorker;
  place.coordinator = cluster.task_address(leader, 0);
  return place;
}

}  // namespace lockstep

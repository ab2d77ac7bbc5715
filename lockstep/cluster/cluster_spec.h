#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/api.h"

namespace lockstep {

/// The job of a task, and its number in it; nothing where that is not known.
using TaskType = std::optional<std::string>;
using TaskId = std::optional<int>;

/// The tasks of one job: a list of addresses, or a map from index to address where some are missing.
class LOCKSTEP_API TaskAddresses {
 public:
  TaskAddresses(std::initializer_list<std::string> addresses);
  TaskAddresses(const std::vector<std::string>& addresses);
  /// Throws `c10::ValueError` for a negative index.
  TaskAddresses(std::map<int, std::string> by_index);
  TaskAddresses(std::initializer_list<std::pair<const int, std::string>> by_index);

  /// Returns whether the indices are 0, 1, 2, … without gaps.
  bool is_dense() const;
  const std::map<int, std::string>& by_index() const& { return by_index_; }
  std::map<int, std::string> by_index() && { return std::move(by_index_); }

  bool operator==(const TaskAddresses&) const = default;

 private:
  std::map<int, std::string> by_index_;
};

/// The tasks of each job, by its name. What is read from a temporary is a copy, so that a loop over it is safe:
/// `for (auto& [index, address] : resolver.cluster_spec().as_dict().at("worker").by_index())`.
class LOCKSTEP_API ClusterDict : public std::map<std::string, TaskAddresses> {
 public:
  using map::map;
  ClusterDict(map jobs) : map(std::move(jobs)) {}  // NOLINT: it is that map

  const TaskAddresses& at(const std::string& job) const& { return map::at(job); }
  TaskAddresses at(const std::string& job) && { return std::move(map::at(job)); }
};

/// Who takes part in a job of several processes: for each kind of task ("chief", "worker", "ps", "evaluator") the
/// addresses of its tasks.
///
///     ClusterSpec cluster({{"worker", {"n1:2222", "n2:2222"}}});
///     cluster.task_address("worker", 1);   // "n2:2222"
///
/// An empty address is that of a task whose address is unknown: MPI and torchrun give ranks and the address of rank 0,
/// which is enough. A job without tasks is dropped. Jobs are ordered by name.
class LOCKSTEP_API ClusterSpec {
 public:
  /// An empty cluster: the process is alone.
  ClusterSpec() = default;
  ClusterSpec(std::map<std::string, TaskAddresses> jobs);
  ClusterSpec(std::initializer_list<std::pair<const std::string, TaskAddresses>> jobs);

  /// Reads `{"worker": ["n1:2222", "n2:2222"], "ps": {"1": "n3:2222"}}`, the form of TF_CONFIG. Throws `c10::TypeError`
  /// for anything else.
  static ClusterSpec from_json(std::string_view text);
  /// Returns the cluster in the form of TF_CONFIG.
  std::string to_json() const;

  /// Returns whether there is any task.
  explicit operator bool() const { return !jobs_.empty(); }
  bool operator==(const ClusterSpec&) const = default;

  std::vector<std::string> jobs() const;
  bool has_job(const std::string& job) const { return jobs_.contains(job); }

  // The following functions throw `c10::ValueError` for a job that is not in the cluster.

  int num_tasks(const std::string& job) const;
  std::vector<int> task_indices(const std::string& job) const;
  /// Returns a task's address. Throws `c10::ValueError` where there is no such task.
  std::string task_address(const std::string& job, int index) const;
  /// Returns the addresses by index, nothing for missing indices.
  std::vector<std::optional<std::string>> job_tasks(const std::string& job) const;

  const ClusterDict& as_dict() const& { return jobs_; }
  ClusterDict as_dict() && { return std::move(jobs_); }

 private:
  const std::map<int, std::string>& tasks_of(const char* operation, const std::string& job) const;

  ClusterDict jobs_;
};

}  // namespace lockstep

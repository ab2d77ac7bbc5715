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

/// The tasks of one job: a list of addresses, or a map from index to address where some are missing.
class LOCKSTEP_API TaskAddresses {
 public:
  TaskAddresses(std::initializer_list<std::string> addresses);
  TaskAddresses(const std::vector<std::string>& addresses);
  /// Throws `c10::ValueError` for a negative index.
  TaskAddresses(std::map<int, std::string> by_index);
  TaskAddresses(std::initializer_list<std::pair<const int, std::string>> by_index);

  /// Returns whether the indices are 0, 1, 2, … with none left out.
  bool is_dense() const;
  const std::map<int, std::string>& by_index() const { return by_index_; }

  bool operator==(const TaskAddresses&) const = default;

 private:
  std::map<int, std::string> by_index_;
};

/// Who takes part in a job of several processes: for each kind of task ("chief", "worker", "ps", "evaluator") the
/// addresses of its tasks.
///
///     ClusterSpec cluster({{"worker", {"n1:2222", "n2:2222"}}});
///     cluster.task_address("worker", 1);   // "n2:2222"
///
/// An empty address stands for a task whose place nobody said: MPI and torchrun tell the ranks and where rank 0 is, and
/// no more is needed. A job without tasks is no job. Jobs are ordered by name.
class LOCKSTEP_API ClusterSpec {
 public:
  /// An empty cluster: the process is alone.
  ClusterSpec() = default;
  ClusterSpec(std::map<std::string, TaskAddresses> jobs);
  ClusterSpec(std::initializer_list<std::pair<const std::string, TaskAddresses>> jobs);

  /// Reads `{"worker": ["n1:2222", "n2:2222"], "ps": {"1": "n3:2222"}}`, the form of TF_CONFIG. Throws `c10::TypeError`
  /// for anything else.
  static ClusterSpec from_json(std::string_view text);
  /// Returns the cluster in that form.
  std::string to_json() const;

  /// Returns whether there is any task.
  explicit operator bool() const { return !jobs_.empty(); }
  bool operator==(const ClusterSpec&) const = default;

  std::vector<std::string> jobs() const;
  bool has_job(const std::string& job) const { return jobs_.contains(job); }

  // What follows throws `c10::ValueError` for a job that is not in the cluster.

  int num_tasks(const std::string& job) const;
  std::vector<int> task_indices(const std::string& job) const;
  /// Returns a task's address. Throws `c10::ValueError` where there is no such task.
  std::string task_address(const std::string& job, int index) const;
  /// Returns the addresses by index, nothing for those left out.
  std::vector<std::optional<std::string>> job_tasks(const std::string& job) const;

  std::map<std::string, TaskAddresses> as_dict() const { return jobs_; }

 private:
  const std::map<int, std::string>& tasks_of(const char* operation, const std::string& job) const;

  std::map<std::string, TaskAddresses> jobs_;
};

}  // namespace lockstep

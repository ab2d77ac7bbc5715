#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/golden/harness.h"

/// Cases that several workers answer: real processes, copies of this program, that make one job.
namespace lockstep::golden {

/// The argument that makes a copy of this program a worker.
inline constexpr const char* kWorkerArgument = "--worker";

/// The workers of one job. They answer case after case, in step with each other, until the object goes.
class WorkerProcesses {
 public:
  /// Starts `count` workers on this machine: TF_CONFIG is their cluster, LOCKSTEP_ENGINE is passed on.
  explicit WorkerProcesses(int count);
  /// Kills them.
  ~WorkerProcesses();
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  /// Lets all workers run a case and returns their answers in order, each a value or `{"error": ...}`. Throws
  /// `HarnessError` when a worker has ended or says nothing for too long; the others are of no use then.
  Json answers(const Case& test_case);

  int count() const { return static_cast<int>(processes_.size()); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Process {
    int id = -1;
    int socket = -1;
    std::string received = {};
  };

  void start(int index, const std::vector<std::string>& variables);
  std::string read_line(int index, Clock::time_point deadline);
  [[noreturn]] void fail_because_ended(int index);

  std::vector<Process> processes_;
  /// For all temporary files of the workers, which are killed before they could remove them.
  std::filesystem::path folder_;
};

/// The life of a worker: answers cases from standard input by `driver`, on standard output, until there are no more.
void answer_as_worker(const Driver& driver);

}  // namespace lockstep::golden

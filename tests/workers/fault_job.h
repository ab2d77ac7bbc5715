#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/child_processes.h"

/// Jobs of fault workers for tests: one of them misbehaves, and the test checks how the others end.
namespace lockstep::tests {

using Json = nlohmann::json;

/// Limit, in seconds, for what must happen on a machine under load.
constexpr double kPatience = 60;
/// Seconds without a heartbeat after which a worker counts as lost, in tests that are about it.
constexpr double kHeartbeatTimeout = 2;
/// Seconds that a loaded machine may add.
constexpr double kLoad = 4;

/// Seconds of the clock that all processes of a machine share.
double now();

/// How a worker ended.
struct Ending {
  /// "exit 0", "signal 9".
  std::string outcome{};
  /// The type of the error, empty where it ended well; its text, the worker that it blames, and when it was caught.
  std::string type{};
  std::string text{};
  int cause = -1;
  double at = 0;
};

/// Returns the path of a program in the folder of this one.
std::filesystem::path program(const std::string& name);

struct FaultJobSettings {
  std::string engine = "shm";
  int num_workers = 3;
  /// NAME=value, for all workers.
  std::vector<std::string> variables{};
  /// Of each worker; empty: this machine's loopback.
  std::vector<std::string> hosts{};
  /// What comes before each worker's command, as `nsenter ...`.
  std::vector<std::vector<std::string>> prefixes{};
};

/// Settings of one worker that differ from the others: variables, and the number of workers.
struct Difference {
  std::vector<std::string> variables{};
  int num_workers = 0;
};

/// The workers of a job, each a process that the test starts. Those that still run at the end are killed.
class FaultJob {
 public:
  explicit FaultJob(FaultJobSettings settings);

  void start(int worker, const std::vector<std::string>& arguments, const Difference& difference = {});
  void start_all(const std::vector<std::string>& arguments);

  /// Waits until the worker has printed this event; a failure of the test where it ends before.
  Json wait_for(int worker, const std::string& event) const;
  void send_signal(int worker, int signal) const { workers_.at(worker).send_signal(signal); }
  /// Waits until the worker has ended; one that hangs is a failure of the test.
  Ending end_of(int worker);
  int num_workers() const { return settings_.num_workers; }
  int port(int worker) const { return ports_[static_cast<size_t>(worker)]; }
  /// host:port of every worker.
  std::vector<std::string> addresses() const;

  /// The dumps of the workers, by worker.
  std::map<int, std::filesystem::path> dumps() const;
  /// The doctor's summary of them.
  std::string diagnosis() const;

 private:
  std::vector<std::string> command(int worker, const std::vector<std::string>& arguments,
                                   const Difference& difference) const;

  FaultJobSettings settings_;
  TestFolder folder_;
  std::vector<int> ports_;
  std::map<int, ChildProcess> workers_;
};

/// Reads what a fault worker has printed.
std::vector<Json> events_of(const std::string& output);
Ending ending_of(const ChildProcess& process);

/// Runs these concurrently, because jobs mostly wait. Failures in them are failures of the test.
void in_parallel(const std::vector<std::function<void()>>& bodies);

/// The engines that are available here and need no launcher; with LOCKSTEP_NCCL_STANDIN=1 and a GPU NCCL alone, whose
/// workers share the GPU.
std::vector<std::string> engines();
/// Calls `body` with each of them, at the same time.
void for_engines(const std::function<void(const std::string&)>& body);
/// Calls `body` with each of them and each of these values, at the same time.
void for_engines(const std::vector<std::string>& values,
                 const std::function<void(const std::string& engine, const std::string& value)>& body);

}  // namespace lockstep::tests

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

/// The life of a job of `lockstep run`.
namespace lockstep::tools {

struct JobOptions {
  /// The program and its arguments.
  std::vector<std::string> command;
  int num_workers = 1;
  /// How often all workers are started again after one has failed.
  int max_restarts = 0;
  /// How long the others may continue after one has failed.
  std::chrono::milliseconds grace{5000};
  /// Port of worker 0; the others have those after it. Unset: any free ones.
  std::optional<int> first_port;
  /// File with the secret of the job; empty: see `JobSettings`.
  std::string token_file;
  /// Whether lines are marked with their worker.
  bool prefix = true;
};

/// The first worker of an attempt that did not end with 0.
struct WorkerFailure {
  int worker = 0;
  /// The status of waitpid.
  int status = 0;
  std::chrono::system_clock::time_point time;
  std::chrono::duration<double> since_start{};
};

struct JobResult {
  /// How often the job was restarted.
  int restarts = 0;
  /// The failure that ended it, if any.
  std::optional<WorkerFailure> failure;
  /// The signal that the launcher got first, or 0.
  int interrupted_by = 0;
};

/// Runs the job to its end and prints, on standard error, each failure and each restart. Throws ValueError, before any
/// worker is started, where the program cannot be executed. No process that the workers started is left afterwards,
/// except those with a session of their own.
JobResult run_job(const JobOptions& options);

/// Returns what a shell would: the exit code, or 128 and the number of the signal; 0 where nothing failed.
int exit_code(const JobResult& result);

/// Returns `exit code 3` or `signal SIGSEGV (Segmentation fault)`.
std::string describe_status(int status);

}  // namespace lockstep::tools

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
  /// The number of workers; of an elastic job, the most.
  int num_workers = 1;
  /// The least number of workers of an elastic job; unset: the job is not elastic.
  std::optional<int> at_least;
  /// How many workers of an elastic job this machine runs; unset: all.
  std::optional<int> local;
  /// host:port at which launchers of other machines can join an elastic job; empty: nobody joins.
  std::string listen;
  /// host:port of the launcher that this one joins, to run `num_workers` of its workers.
  std::string join;
  /// How often all workers are started again after one has failed; of an elastic job, how often one is replaced.
  int max_restarts = 0;
  /// How many restarts in a row may finish no step.
  int max_without_progress = 5;
  /// How long the others may continue after one has failed.
  std::chrono::milliseconds grace{5000};
  /// Whether `grace` was given; else an elastic job, whose workers may be in a long step, has a longer one.
  bool grace_is_given = false;
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
  /// How often the job was restarted, or a worker of an elastic job replaced.
  int restarts = 0;
  /// How many views an elastic job had.
  int views = 0;
  /// The failure that ended it, if any.
  std::optional<WorkerFailure> failure;
  /// The signal that the launcher got first, or 0.
  int interrupted_by = 0;
};

/// Runs the job to its end and prints, on standard error, each failure and each restart. Throws ValueError, before any
/// worker is started, where the program cannot be executed. No process that the workers started is left afterwards,
/// except those with a session of their own.
JobResult run_job(const JobOptions& options);

/// Prints a line of the launcher on standard error, with one write, so that the output of others does not interleave.
void say(const std::string& line);
/// Prints how a worker has failed.
void say_failure(const WorkerFailure& failure);

/// Returns what a shell would: the exit code, or 128 and the number of the signal; 0 where nothing failed.
int exit_code(const JobResult& result);

/// Returns `exit code 3` or `signal SIGSEGV (Segmentation fault)`.
std::string describe_status(int status);

}  // namespace lockstep::tools

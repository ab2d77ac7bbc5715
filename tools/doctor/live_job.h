#pragma once

#include <chrono>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tools/doctor/doctor_dump.h"
#include "tools/doctor/job_processes.h"
#include "tools/print_result.h"

/// `lockstep doctor JOB`: what each worker of a running job does.
namespace lockstep::tools {

/// One process at one moment.
struct ProcessLook {
  JobProcess process;
  /// What it answered; nothing where it did not.
  std::optional<WorkerDump> dump;
  /// Why it did not answer.
  std::string silence;
};
using JobLook = std::vector<ProcessLook>;

/// Asks all processes at once and returns what they answered within `limit`.
JobLook look_at(const std::vector<JobProcess>& processes, std::chrono::milliseconds limit);

/// One worker, from two looks.
struct LiveWorker {
  pid_t pid = 0;
  /// Where it did not answer, its number in `lockstep run`; -1: not known.
  int worker = -1;
  std::string name;
  std::string host;
  int64_t step = -1;
  int64_t runs = -1;
  /// Steps, or runs where the program counts no steps, of a second: between the looks, and since the first step or run.
  /// Nothing where it is not known.
  std::optional<double> rate;
  std::optional<double> average_rate;
  double busy = -1;
  double busy_seconds = 0;
  /// Why `busy` is not measured; empty where it is, or will be.
  std::string busy_unknown;
  /// What it does, in words. Why it did not answer, where it did not.
  std::string where;
  bool answers = false;
  /// All of its ranks wait in collectives.
  bool waits = false;
};

struct LiveJob {
  std::vector<LiveWorker> workers;
  /// The workers that no process of JOB is, as their job names them: they run on other machines, or apart from JOB.
  std::vector<std::string> not_asked;
  std::string summary;
  bool all_answer() const;
};

/// Compares two looks at the same processes. Clocks of different processes are not compared.
LiveJob compare_looks(const JobLook& before, const JobLook& after);

Json to_json(const LiveJob& job);
void print_live_job(const LiveJob& job, std::ostream& out);

/// Looks twice, a second apart, and reports. With `watch` above zero it goes on, until the job has ended, with a report
/// every `watch` seconds. Returns whether all workers answered the last time. ValueError where there is nobody to ask.
bool examine_running_job(const std::string& job, double watch, ResultStyle style);

}  // namespace lockstep::tools

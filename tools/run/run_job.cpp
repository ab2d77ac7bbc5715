#include "tools/run/run_job.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/crypto.h"
#include "lockstep/comm/job/job_options.h"
#include "tools/run/elastic_job.h"
#include "tools/run/job_folder.h"
#include "tools/run/joined_job.h"
#include "tools/run/local_workers.h"
#include "tools/run/restart_policy.h"
#include "tools/run/run_attempt.h"

namespace lockstep::tools {
namespace {

void check(const JobOptions& options) {
  LOCKSTEP_CHECK_VALUE(!options.command.empty(),
                       "[run] a program must be given; write it, and its arguments, after --");
  LOCKSTEP_CHECK_VALUE(options.num_workers >= 1, "[run] there must be at least one worker: n=", options.num_workers);
  LOCKSTEP_CHECK_VALUE(options.max_restarts >= 0,
                       "[run] the number of restarts must not be negative: restarts=", options.max_restarts);
  LOCKSTEP_CHECK_VALUE(options.grace.count() >= 0,
                       "[run] the grace must not be negative: milliseconds=", options.grace.count());
  LOCKSTEP_CHECK_VALUE(options.max_without_progress >= 1,
                       "[run] at least one restart without progress must be allowed: restarts_without_progress=",
                       options.max_without_progress);
  LOCKSTEP_CHECK_VALUE(!options.at_least || (*options.at_least >= 1 && *options.at_least <= options.num_workers),
                       "[run] the least number of workers must lie between 1 and the most: n=", *options.at_least, ":",
                       options.num_workers);
  LOCKSTEP_CHECK_VALUE(options.at_least || (options.listen.empty() && !options.local),
                       "[run] only elastic jobs can be joined; give -n LEAST:MOST with --listen and --local");
  LOCKSTEP_CHECK_VALUE(!options.local || (*options.local >= 0 && *options.local <= options.num_workers),
                       "[run] the workers of this machine must be some of all: local=", *options.local,
                       ", n=", options.num_workers);
  LOCKSTEP_CHECK_VALUE(!options.first_port || (!options.at_least && options.join.empty()),
                       "[run] workers of elastic jobs choose their ports; leave out --port");
  LOCKSTEP_CHECK_VALUE(options.join.empty() || (!options.at_least && options.listen.empty()),
                       "[run] a launcher that joins another one offers N places; give --join with -n N");
  LOCKSTEP_CHECK_VALUE(options.token_file.empty() || access(options.token_file.c_str(), R_OK) == 0,
                       "[run] the file with the secret must be readable: token_file=", options.token_file);
}

/// Workers of other machines connect to those of this one at the address at which it listens.
void check_listen(const JobOptions& options) {
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return host == name; });
  };
  if (options.listen.empty()) return;
  LOCKSTEP_CHECK_VALUE(!is_one_of({"", "*", "0", "0.0.0.0", "::", "[::]"}),
                       "[run] the launcher must listen at the address of this machine that others reach: listen=",
                       options.listen, "; give its name or its address");
  if (is_one_of({"localhost", "127.0.0.1", "::1", "[::1]"})) {
    say("--listen " + options.listen + ": only launchers on this machine can join");
  }
}

std::string time_of_day(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm fields{};
  localtime_r(&seconds, &fields);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S", &fields);
  return text.data();
}

/// Says how the job goes on after a restart, as soon as a worker has told it.
class ResumeReport {
 public:
  ResumeReport(const JobFolder& folder, uint64_t first_worker, int64_t step_before)
      : folder_(folder), first_worker_(first_worker), step_before_(step_before) {}

  void look() {
    const int64_t resumed = is_due_ ? folder_.steps(first_worker_).resumed : -1;
    if (resumed < 0) return;
    is_due_ = false;
    const int64_t lost = std::max<int64_t>(step_before_ - resumed, 0);
    say("the job goes on after step " + std::to_string(resumed) + ", " + std::to_string(lost) +
        (lost == 1 ? " step lost" : " steps lost"));
  }

 private:
  const JobFolder& folder_;
  uint64_t first_worker_;
  int64_t step_before_;
  bool is_due_ = step_before_ >= 0;
};

/// Runs all workers once.
void run_attempt(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder,
                 RestartPolicy& policy, JobResult& result) {
  const JobSettings settings{find_ports(options.num_workers, options.first_port), result.restarts, options.token_file,
                             comm::job::tokens_are_supported()};
  const uint64_t first = static_cast<uint64_t>(result.restarts) * static_cast<uint64_t>(options.num_workers);
  std::optional<LocalWorkers> workers;
  {
    const SignalQueue signals;
    workers.emplace(file, options.command, options.prefix, watchdog);
    Attempt attempt(options, settings, *workers, folder, first);
    ResumeReport report(folder, first, policy.step());
    attempt.wait(signals, [&] { report.look(); });
    result.failure = attempt.failure();
    result.interrupted_by = attempt.interrupted_by();
  }
  // Signals end the launcher again: no worker is left while a slow reader takes the last lines.
  workers->finish_output();
  policy.note_step(folder.highest_step());
}

/// Waits before a restart; returns the signal that interrupts it, or 0.
int wait_for_restart(std::chrono::milliseconds wait) {
  const SignalQueue signals;
  const auto deadline = std::chrono::steady_clock::now() + wait;
  for (auto left = wait; left.count() > 0;) {
    const int signal = signals.wait(left);
    if (signal != 0 && signal != SIGCHLD) return signal;
    left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  }
  return 0;
}

bool was_preempted(const WorkerFailure& failure) {
  return WIFEXITED(failure.status) && WEXITSTATUS(failure.status) == kPreempted;
}

/// Runs all workers, and starts all of them again when one fails.
JobResult run_with_restarts(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder) {
  RestartPolicy policy(options.max_restarts, options.max_without_progress);
  JobResult result;
  for (;;) {
    run_attempt(options, file, watchdog, folder, policy, result);
    if (result.failure) say_failure(*result.failure);
    if (!result.failure || result.interrupted_by != 0) return result;
    const auto wait = policy.next(was_preempted(*result.failure));
    if (!wait) {
      if (!policy.refusal().empty()) say("the job ends: " + policy.refusal());
      return result;
    }
    result.restarts = policy.restarts();
    say(policy.description() + ": all " + std::to_string(options.num_workers) + " workers start again" +
        (policy.step() < 0 ? "" : ", step " + std::to_string(policy.step()) + " was the last one") +
        (wait->count() == 0 ? "" : ", in " + comm::job::seconds(*wait)));
    result.interrupted_by = wait_for_restart(*wait);
    if (result.interrupted_by != 0) return result;
  }
}

}  // namespace

JobResult run_job(const JobOptions& options) {
  check(options);
  check_listen(options);
  JobOptions absolute = options;
  if (!options.token_file.empty()) absolute.token_file = std::filesystem::absolute(options.token_file);
  const std::string file = find_program(options.command.front());
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  JobFolder folder;
  Watchdog watchdog(folder.path());
  if (!absolute.join.empty()) return run_joined(absolute, file, watchdog, folder);
  if (absolute.at_least) return run_elastic(absolute, file, watchdog, folder);
  return run_with_restarts(absolute, file, watchdog, folder);
}

void say(const std::string& line) { std::cerr << ("lockstep run: " + line + '\n') << std::flush; }

void say_failure(const WorkerFailure& failure) {
  std::ostringstream line;
  line.precision(1);
  line << std::fixed << "worker " << failure.worker << " failed with " << describe_status(failure.status) << " at "
       << time_of_day(failure.time) << ", " << failure.since_start.count() << " s after its start";
  say(line.str());
}

int exit_code(const JobResult& result) {
  if (!result.failure) return 0;
  const int status = result.failure->status;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return "signal " + (name == nullptr ? std::to_string(WTERMSIG(status)) : "SIG" + std::string(name)) + " (" +
         strsignal(WTERMSIG(status)) + ")";
}

}  // namespace lockstep::tools

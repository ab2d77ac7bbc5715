#include "tools/run/run_job.h"

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
#include "tools/run/run_attempt.h"
#include "tools/run/run_output.h"

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
  LOCKSTEP_CHECK_VALUE(options.token_file.empty() || access(options.token_file.c_str(), R_OK) == 0,
                       "[run] the file with the secret must be readable: token_file=", options.token_file);
}

std::string time_of_day(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm fields{};
  localtime_r(&seconds, &fields);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S", &fields);
  return text.data();
}

/// Prints with one write, so that the output of others does not interleave.
void say(const std::string& line) { std::cerr << ("lockstep run: " + line + '\n') << std::flush; }

void say_failure(const WorkerFailure& failure) {
  std::ostringstream line;
  line.precision(1);
  line << std::fixed << "worker " << failure.worker << " failed with " << describe_status(failure.status) << " at "
       << time_of_day(failure.time) << ", " << failure.since_start.count() << " s after its start";
  say(line.str());
}

/// Runs all workers once.
void run_attempt(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobResult& result) {
  const JobSettings settings{find_ports(options.num_workers, options.first_port), result.restarts, options.token_file,
                             comm::job::tokens_are_supported()};
  std::optional<OutputThread> output;
  {
    const SignalQueue signals;
    Attempt attempt(options, file, settings, watchdog);
    output.emplace(attempt.take_output());
    attempt.wait(signals);
    result.failure = attempt.failure();
    result.interrupted_by = attempt.interrupted_by();
  }
  // Signals end the launcher again: no worker is left while a slow reader takes the last lines.
  output->finish();
}

}  // namespace

JobResult run_job(const JobOptions& options) {
  check(options);
  JobOptions absolute = options;
  if (!options.token_file.empty()) absolute.token_file = std::filesystem::absolute(options.token_file);
  const std::string file = find_program(options.command.front());
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Watchdog watchdog;
  JobResult result;
  for (;;) {
    run_attempt(absolute, file, watchdog, result);
    if (result.failure) say_failure(*result.failure);
    if (!result.failure || result.interrupted_by != 0 || result.restarts == options.max_restarts) return result;
    ++result.restarts;
    say("restart " + std::to_string(result.restarts) + " of " + std::to_string(options.max_restarts) + ": all " +
        std::to_string(options.num_workers) + " workers start again");
  }
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

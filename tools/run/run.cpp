#include <charconv>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "tools/run/run_job.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

constexpr const char* kFooter = R"(
Write lockstep run -n N [OPTIONS] -- PROGRAM [ARGUMENTS...]
      lockstep run -n LEAST:MOST [OPTIONS] -- PROGRAM [ARGUMENTS...]
      lockstep run -n N --join HOST:PORT [OPTIONS] -- PROGRAM [ARGUMENTS...]

Each worker finds its place in TF_CONFIG (of an elastic job inside train_elastic), the job's secret in LOCKSTEP_JOB_TOKEN and
the number of restarts so far, of the job or of this worker of an elastic one, in LOCKSTEP_RESTART. Its input is empty. Its
lines come out whole, standard output to standard output, standard error to standard error.

With LEAST:MOST workers the job is elastic (docs/elastic.md): when one is lost, the others go on in their processes. The program
trains inside train_elastic. Launchers on other machines join by --join and the job's token; --restarts,
--restarts-without-progress and --grace are those of the launcher that they join.

A worker that was preempted (SIGTERM), and has saved its state, ends with 75. It is started again without using up one of the
restarts, if there are any.

The exit status is 0 if all workers ended with 0, else that of the first that failed (128 and the number of the signal that
ended it). Of an elastic job it is 0 if those who were left ended with 0, else that of the last one that was lost. It is 75 if
SIGTERM came to the launcher and the workers have saved, or had nothing to save. Ctrl-C, SIGTERM and SIGHUP are passed on to the workers; a second one
(SIGTERM: more than a second later) kills them. What workers have started ends with them, unless it made a session of its own
(setsid).

Examples:
  lockstep run -n 2 -- ./train --epochs 3          two workers on this machine
  lockstep run -n 4 --restarts 3 -- ./train        start all again, at most three times, when one fails
  lockstep run -n 2:4 --restarts 9 -- ./train      go on with at least two of four workers, replace lost ones
  lockstep run -n 2 --json -- ./train 2>log        the log's last line is {"workers":2,"restarts":0,"exit":0,...}
  lockstep run -n 2 -- bash -c 'echo $TF_CONFIG'   what workers are told
)";

void print_json(const JobOptions& options, const JobResult& result) {
  nlohmann::ordered_json report{{"workers", options.num_workers},
                                {"restarts", result.restarts},
                                {"exit", exit_code(result)},
                                {"failed_worker", nullptr},
                                {"failure", nullptr}};
  if (options.at_least) report["views"] = result.views;
  if (result.failure) {
    report["failed_worker"] = result.failure->worker;
    report["failure"] = describe_status(result.failure->status);
  }
  std::cerr << report.dump() << std::endl;
}

/// Reads N or LEAST:MOST.
void read_workers(const std::string& text, JobOptions& options) {
  const auto number = [&](const std::string& word) {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    LOCKSTEP_CHECK_VALUE(error == std::errc() && end == word.data() + word.size(),
                         "[run] the number of workers must be N or LEAST:MOST: n=", text);
    return value;
  };
  const size_t colon = text.find(':');
  if (colon != std::string::npos) options.at_least = number(text.substr(0, colon));
  options.num_workers = number(colon == std::string::npos ? text : text.substr(colon + 1));
}

}  // namespace

void add_run(CLI::App& app, const std::vector<std::string>& program) {
  auto* command = app.add_subcommand("run", "Start several workers of a program on this machine and supervise them");
  auto options = std::make_shared<JobOptions>();
  options->command = program;
  auto grace = std::make_shared<double>(5);
  auto no_prefix = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  command->footer(kFooter);
  auto workers = std::make_shared<std::string>();
  command->add_option("-n,--workers", *workers, "Number of workers, or LEAST:MOST for an elastic job")->required();
  command
      ->add_option("--restarts", options->max_restarts,
                   "How often to start all workers again after one has failed, or to replace one of an elastic job")
      ->capture_default_str();
  command
      ->add_option("--restarts-without-progress", options->max_without_progress,
                   "How many restarts in a row may finish no step, of programs that report steps or were preempted")
      ->capture_default_str();
  command->add_option("--local", options->local, "How many workers of an elastic job run here. Unset: all");
  command->add_option("--listen", options->listen, "HOST:PORT at which other launchers can join an elastic job");
  command->add_option("--join", options->join, "HOST:PORT of the elastic job to run N workers for");
  command->add_option("--token-file", options->token_file, "File with the secret of the job, instead of a random one");
  auto* grace_option = command->add_option(
      "--grace", *grace,
      "Seconds that the other workers have to report their own errors, or to leave their view, after one has failed. "
      "Unset: 5, or 60 in an elastic job");
  command->add_flag("--no-prefix", *no_prefix, "Print lines without [worker I] in front");
  command->add_option("--port", options->first_port,
                      "Port of worker 0; the others get the next ones. Unset: any free ports");
  command->add_flag("--json", *json,
                    "Print one JSON object at the end, on standard error: standard output is the workers'");
  command->callback([=] {
    options->grace = std::chrono::milliseconds(static_cast<int64_t>(*grace * 1000));
    options->grace_is_given = grace_option->count() > 0;
    options->prefix = !*no_prefix;
    read_workers(*workers, *options);
    const JobResult result = run_job(*options);
    if (*json) print_json(*options, result);
    if (const int code = exit_code(result); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace lockstep::tools

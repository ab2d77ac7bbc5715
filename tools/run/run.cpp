#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/run/run_job.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

constexpr const char* kFooter = R"(
Write lockstep run -n N [OPTIONS] -- PROGRAM [ARGUMENTS...]

Each worker finds its place in TF_CONFIG, the job's secret in LOCKSTEP_JOB_TOKEN and the number of restarts so far in
LOCKSTEP_RESTART. Its input is empty. Its lines come out whole, standard output to standard output, standard error to standard
error.

The exit status is 0 if all workers ended with 0, else that of the first that failed (128 and the number of the signal that ended
it). Ctrl-C, SIGTERM and SIGHUP are passed on to the workers; a second one kills them. What workers have started ends with them,
unless it made a session of its own (setsid).

Examples:
  lockstep run -n 2 -- ./train --epochs 3          two workers on this machine
  lockstep run -n 4 --restarts 3 -- ./train        start all again, at most three times, when one fails
  lockstep run -n 2 --json -- ./train 2>log        the log's last line is {"workers":2,"restarts":0,"exit":0,...}
  lockstep run -n 2 -- bash -c 'echo $TF_CONFIG'   what workers are told
)";

void print_json(const JobOptions& options, const JobResult& result) {
  nlohmann::ordered_json report{{"workers", options.num_workers},
                                {"restarts", result.restarts},
                                {"exit", exit_code(result)},
                                {"failed_worker", nullptr},
                                {"failure", nullptr}};
  if (result.failure) {
    report["failed_worker"] = result.failure->worker;
    report["failure"] = describe_status(result.failure->status);
  }
  std::cerr << report.dump() << std::endl;
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
  command->add_option("-n,--workers", options->num_workers, "Number of workers")->required();
  command->add_option("--restarts", options->max_restarts, "How often to start all workers again after one has failed")
      ->capture_default_str();
  command->add_option("--token-file", options->token_file, "File with the secret of the job, instead of a random one");
  command
      ->add_option("--grace", *grace,
                   "Seconds that the other workers have to report their own errors after one has failed")
      ->capture_default_str();
  command->add_flag("--no-prefix", *no_prefix, "Print lines without [worker I] in front");
  command->add_option("--port", options->first_port,
                      "Port of worker 0; the others get the next ones. Unset: any free ports");
  command->add_flag("--json", *json,
                    "Print one JSON object at the end, on standard error: standard output is the workers'");
  command->callback([=] {
    options->grace = std::chrono::milliseconds(static_cast<int64_t>(*grace * 1000));
    options->prefix = !*no_prefix;
    const JobResult result = run_job(*options);
    if (*json) print_json(*options, result);
    if (const int code = exit_code(result); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace lockstep::tools

#include "tools/bench/bench_workers.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <unistd.h>

#include "bench/all_reduce_workers.h"
#include "bench/compression_step.h"
#include "bench/step_workers.h"
#include "bench/worker_team.h"
#include "lockstep/base/error.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolve_cluster.h"
#include "lockstep/comm/transport/engine_module.h"

namespace lockstep::tools {
namespace {

bool has_cluster() { return worker_place(*resolve_cluster()).has_value(); }

/// The command line of this process, the program by its full path.
std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe");
  return words;
}

/// Returns only where the program cannot be executed.
void become(std::vector<std::string> command) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
}

/// Does not return. By mpirun where lockstep was built for it, so that MPI can be measured too; else by `lockstep run`.
void start_workers(int num_workers) {
  const std::vector<std::string> own = own_command();
  const std::string count = std::to_string(num_workers);
  const auto started_by = [&own](std::vector<std::string> launcher) {
    launcher.insert(launcher.end(), own.begin(), own.end());
    return launcher;
  };
  if (comm::state_of_engine("mpi").remark.starts_with("Open MPI")) {
    become(started_by({"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", count}));
  }
  become(started_by({own[0], "run", "-n", count, "--no-prefix", "--"}));
  LOCKSTEP_THROW(c10::ValueError, "[bench] the workers must be started: program=", own[0], "; ", std::strerror(errno));
}

Json microseconds(std::optional<double> seconds) { return seconds ? Json(*seconds * 1e6) : Json(); }

/// How many times faster `ours` is.
Json speedup(std::optional<double> theirs, double ours) { return theirs ? Json(*theirs / ours) : Json(); }

Json to_json(const bench::WorkersAllReduceResult& r) {
  return {{"name", "all_reduce"},
          {"bytes", r.bytes},
          {"replicas", r.workers},
          {"seconds", r.own},
          {"algbw", static_cast<double>(r.bytes) / r.own},
          {"memory_bandwidth", r.memory_bandwidth},
          {"fraction_of_limit", r.fraction_of_limit},
          {"workers", r.workers},
          {"engine", r.engine},
          {"own_us", microseconds(r.own)},
          {"foreign_us", microseconds(r.foreign)},
          {"gloo_us", microseconds(r.gloo)},
          {"mpi_us", microseconds(r.mpi)},
          {"local_us", microseconds(r.local)},
          {"speedup_gloo", speedup(r.gloo, r.own)},
          {"speedup_mpi", speedup(r.mpi, r.own)},
          {"foreign_speedup_gloo", speedup(r.gloo, r.foreign)},
          {"foreign_speedup_mpi", speedup(r.mpi, r.foreign)},
          {"fraction_of_local", r.local / r.own}};
}

}  // namespace

void report_all_reduce_on_workers(int num_workers, const bench::AllReduceOptions& options, ResultStyle style) {
  if (!has_cluster()) start_workers(num_workers);
  bench::WorkerTeam team(num_workers);
  bench::WorkersAllReduce all_reduce(team);
  for (const int64_t bytes : options.bytes.empty() ? bench::worker_message_sizes() : options.bytes) {
    const auto result = all_reduce.measure(bytes, options.seconds_per_size);
    if (team.is_first()) print_result(to_json(result), style);
  }
}

void report_step_on_workers(int num_workers, const std::vector<bench::StepOptions>& cases, ResultStyle style) {
  if (!has_cluster()) start_workers(num_workers);
  bench::WorkerTeam team(num_workers);
  for (const bench::StepOptions& each : cases) {
    Json result = step_json(bench::bench_step_workers(team, each));
    result["workers"] = team.count();
    result["engine"] = team.strategy().engine();
    if (team.is_first()) print_result(result, style);
  }
}

void report_compression_on_workers(int num_workers, const bench::StepOptions& options, ResultStyle style) {
  setenv("LOCKSTEP_ENGINE", "gloo", /*overwrite=*/0);
  if (!has_cluster()) start_workers(num_workers);
  bench::WorkerTeam team(num_workers);
  LOCKSTEP_CHECK_VALUE(team.strategy().engine() != "shm", "[bench] compression acts on messages: engine=shm",
                       "; choose another one: LOCKSTEP_ENGINE=gloo");
  const auto results = bench::bench_compression(team, options);
  if (!team.is_first()) return;
  for (const bench::CompressionResult& each : results) {
    print_result({{"name", "compression"},
                  {"compression", each.compression},
                  {"workers", team.count()},
                  {"engine", team.strategy().engine()},
                  {"width", options.width},
                  {"batch", options.batch},
                  {"seconds", each.seconds},
                  {"seconds_none", each.seconds_none},
                  {"ratio", each.seconds / each.seconds_none},
                  {"bytes_sent", each.bytes},
                  {"bytes_sent_none", each.bytes_none},
                  {"pays_below_bytes_per_second", each.pays_below ? Json(*each.pays_below) : Json()}},
                 style);
  }
}

Json step_json(const bench::StepResult& r) {
  Json json{{"name", r.name},
            {"width", r.options.width},
            {"batch", r.options.batch},
            {"replicas", r.options.replicas},
            {"optimizer", r.options.optimizer},
            {"threads_per_replica", r.threads_per_replica},
            {"seconds_plain", r.seconds_plain},
            {"seconds_1", r.seconds_1},
            {"seconds_n", r.seconds_n},
            {"seconds_alone", r.seconds_alone},
            {"efficiency", r.efficiency},
            {"overhead_1", r.overhead_1},
            {"fraction_of_alone", r.fraction_of_alone},
            {"strategy", r.options.strategy}};
  if (r.parameter_bytes > 0) json["parameter_bytes"] = r.parameter_bytes;
  if (r.efficiency_mirrored) json["efficiency_mirrored"] = *r.efficiency_mirrored;
  if (r.against_mirrored) json["against_mirrored"] = *r.against_mirrored;
  return json;
}

}  // namespace lockstep::tools

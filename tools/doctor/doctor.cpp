#include <algorithm>
#include <cstdint>
#include <dlfcn.h>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/full.h>
#include <torch/version.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategies/mirrored.h"
#include "lockstep/version.h"
#include "tools/doctor/build_features.h"
#include "tools/doctor/doctor_cluster.h"
#include "tools/doctor/doctor_dump.h"
#include "tools/doctor/doctor_report.h"
#include "tools/doctor/doctor_topology.h"
#include "tools/doctor/doctor_trace.h"
#include "tools/doctor/doctor_xla.h"
#include "tools/doctor/job_processes.h"
#include "tools/doctor/live_job.h"
#include "tools/print_result.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

/// Returns the file that the BLAS of this process comes from, or nothing when it is inside LibTorch.
std::string blas_file() {
  void* symbol = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

Json blas() {
  const std::string file = blas_file();
  Json result{{"library", file.empty() ? "inside LibTorch" : file}};
  if (auto* config = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_config"))) {
    result["name"] = config();
  } else if (at::hasMKL()) {
    result["name"] = "MKL";
  } else if (!file.empty() && file.find("openblas") == std::string::npos) {
    result["name"] = "reference BLAS";
    result["warning"] = "matrix products are about 10 times slower than with OpenBLAS; install libopenblas0-pthread";
  } else {
    result["name"] = file.empty() ? "unknown" : "OpenBLAS";
  }
  return result;
}

Json devices() {
  Json result = Json::array();
  for (const LogicalDevice& device : list_logical_devices()) {
    result.push_back(device.name + " (" + device.torch_device.str() + ")");
  }
  return result;
}

/// The engines that are available here.
Json engines() {
  Json result = Json::object();
  for (const comm::Engine& engine : comm::engines()) {
    result[std::string(engine.name)] = {{"available", engine.available},
                                        {"ranks", engine.ranks},
                                        {"devices", engine.devices},
                                        {"why_not", engine.why_not},
                                        {"remark", engine.remark}};
  }
  return result;
}

/// Returns one line for people: `yes, between processes, on cpu; Gloo 0.5.0`.
std::string describe_engine(const Json& engine) {
  if (!engine["available"].get<bool>()) return "no: " + engine["why_not"].get<std::string>();
  const std::string remark = engine["remark"];
  return "yes, between " + engine["ranks"].get<std::string>() + ", on " + engine["devices"].get<std::string>() +
         (remark.empty() ? "" : "; " + remark);
}

/// Sums a tensor over two replicas and compares.
std::string self_test() {
  set_logical_devices("CPU", 2);
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto sums = strategy.run([] {
    const ReplicaContext context = get_replica_context();
    return context.all_reduce("sum", at::full({1000}, context.replica_id_in_sync_group() + 1.0));
  });
  reset_logical_devices();
  for (const at::Tensor& sum : sums) {
    if (!sum.eq(3.0).all().item<bool>()) return "FAILED: an all-reduce of 1 and 2 over two replicas is not 3";
  }
  return "passed: all-reduce over two replicas";
}

Json environment() {
  Json result = Json::object();
  for (const auto& variable : env::variables()) {
    if (const auto value = env::given(variable.name)) result[std::string(variable.name)] = *value;
  }
  return result;
}

Json examine() {
  apply_machine_defaults();
  return Json{
      {"lockstep", version()},
      {"libtorch", TORCH_VERSION},
      {"devices", devices()},
      {"cuda", at::hasCUDA() ? "yes" : "no: this LibTorch has no CUDA, or there is no driver"},
      {"blas", blas()},
      {"onednn", at::hasMKLDNN() ? (at::globalContext().userEnabledMkldnn() ? "on" : "off") : "not in this LibTorch"},
      {"threads",
       {{"cores", num_hardware_threads()},
        {"intra_op", at::get_num_threads()},
        {"follow_replicas", blas_library().controlled ? "yes" : "no: this BLAS has its own"}}},
      {"engines", engines()},
      {"openssl", openssl_state()},
      {"curl", curl_state()},
      {"self_test", self_test()},
      {"environment", environment()},
  };
}

std::string describe(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void print(const Json& report) {
  for (const auto& [name, value] : report.items()) {
    if (!value.is_object()) {
      std::cout << name << ": " << describe(value) << '\n';
      continue;
    }
    std::cout << name << ":" << (value.empty() ? " nothing set" : "") << '\n';
    for (const auto& [key, entry] : value.items()) {
      const std::string text = name == "engines" ? describe_engine(entry) : describe(entry);
      std::cout << "  " << key << ": " << text << '\n';
    }
  }
  std::cout << "variables:\n";
  for (const auto& variable : env::variables()) {
    std::cout << "  " << variable.name << " [" << variable.default_value << "]  " << variable.meaning << '\n';
  }
}

void examine_machine(ResultStyle style) {
  const Json result = examine();
  if (style == ResultStyle::Json) {
    print_result(result, style);
  } else {
    print(result);
  }
}

/// Exits with 1 when the ranks are not in step.
void examine_job(const std::vector<std::string>& files, ResultStyle style) {
  std::vector<WorkerDump> dumps;
  for (const std::string& file : files) dumps.push_back(read_dump(file));
  const Diagnosis result = diagnose(std::move(dumps));
  if (style == ResultStyle::Json) {
    print_result(to_json(result), style);
  } else {
    print(result, std::cout);
  }
  if (!result.in_step) throw CLI::RuntimeError(1);
}

/// The dumps in a folder whose programs have ended; nothing where it has none.
std::vector<std::string> files_of_ended_job(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("lockstep-worker") && name.ends_with(".json")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// A coordinator speaks to workers alone, and jobs are one argument.
void check_files(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const bool is_address = argument.find(':') != std::string::npos && !std::filesystem::exists(argument);
    LOCKSTEP_CHECK_VALUE(!is_address,
                         "[doctor] a job is asked on the machines of its workers, not by its address: JOB=", argument,
                         "; call `lockstep doctor PROCESS` on each machine");
    LOCKSTEP_CHECK_VALUE(!names_job(argument), "[doctor] give one JOB, or FILEs: JOB=", argument);
  }
}

void check_watch(double watch, const char* what) {
  LOCKSTEP_CHECK_VALUE(watch == 0, "[doctor] --watch needs a JOB that runs, and there ", what, ": --watch=", watch,
                       "; leave it out");
}

/// Exits with 1 when a worker does not answer.
void examine_live_job(const std::string& job, double watch, ResultStyle style) {
  if (std::filesystem::is_directory(job) && find_job_processes(job).empty()) {
    if (const auto files = files_of_ended_job(job); !files.empty()) {
      check_watch(watch, "are only files of a job that has ended");
      return examine_job(files, style);
    }
  }
  if (!examine_running_job(job, watch, style)) throw CLI::RuntimeError(1);
}

/// Exits with 1 when the description of a cluster is invalid.
void examine_environment(ResultStyle style) {
  const Json result = examine_cluster();
  if (style == ResultStyle::Json) {
    print_result(result, style);
  } else {
    print_cluster(result, std::cout);
  }
  if (result.contains("error")) throw CLI::RuntimeError(1);
}

void examine_slice(const TopologyRequest& request, ResultStyle style) {
  const TopologyAnswer answer = examine_topology(request);
  if (style == ResultStyle::Json) {
    print_result(to_json(answer), style);
  } else {
    print_topology(answer, std::cout);
  }
}

/// Exits with 1 when no plugin is found, or one does not work.
void examine_plugins(ResultStyle style) {
  const XlaState state = examine_xla();
  if (style == ResultStyle::Json) {
    print_result(to_json(state), style);
  } else {
    print_xla(state, std::cout);
  }
  if (!state.passed()) throw CLI::RuntimeError(1);
}

/// Adds the options of replicas in a TPU slice; each needs --topology.
void add_topology_options(CLI::App& command, TopologyRequest& request) {
  auto* topology =
      command.add_option("--topology", request.topology,
                         "Coordinates of replicas in a TPU slice: the sizes of its mesh as XxYxZxCORES, its "
                         "type (v3-32, v5litepod-8), or env, the slice that the environment describes");
  command
      .add_option("--computation-shape", request.computation_shape,
                  "Cores of a replica along x, y, z and the cores of a chip [1,1,1,1]")
      ->needs(topology);
  command
      .add_option("--computation-stride", request.computation_stride,
                  "Distance between a replica's cores along each axis [1,1,1,1]")
      ->needs(topology);
  command.add_option("--replicas", request.num_replicas, "Number of replicas [as many as fit]")->needs(topology);
  command.add_option("--device-order", request.device_order, "auto, ring or mesh")
      ->capture_default_str()
      ->needs(topology);
  command
      .add_option("--chips-per-host,--hosts", request.chips_per_host,
                  "Chips of a host along x, y, z [2x2x1, or the default of that type]")
      ->needs(topology);
  command.add_option("--missing-hosts", request.missing_hosts, "Missing hosts, by number: 3,5")
      ->delimiter(',')
      ->needs(topology);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto* command = app.add_subcommand("doctor",
                                     "Show devices, LibTorch, BLAS, threads, engines and environment; with JOB, what "
                                     "each worker of a running job does; with FILEs, which rank of a job is out of "
                                     "step");
  auto files = std::make_shared<std::vector<std::string>>();
  auto watch = std::make_shared<double>(0);
  auto cluster = std::make_shared<bool>(false);
  auto xla = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  auto topology = std::make_shared<TopologyRequest>();
  command->add_option(
      "JOB|FILE", *files,
      "JOB: the process id of `lockstep run` or of a program, the folder of the job, or the folder LOCKSTEP_DUMP of "
      "running programs: step, rate and place of each worker on this machine; exit status 1 if one does not answer. "
      "FILEs that the workers of a job have written to LOCKSTEP_DUMP, one for each; exit status 1 if they are out of "
      "step");
  command->add_option("--watch", *watch, "With JOB: report every so many seconds, until the job ends")
      ->check(CLI::Range(0.1, 86400.0));
  command->add_flag("--cluster", *cluster, "Show the job that the environment describes, and the source of each value");
  command->add_flag(
      "--xla", *xla,
      "Show XLA plugins and their devices, and whether they work; exit status 1 if not, or if there is none");
  add_topology_options(*command, *topology);
  command->add_flag("--json", *json, "Print one JSON object");
  command->footer(
      "\nExamples:\n"
      "  lockstep doctor                        this machine\n"
      "  lockstep doctor 4711                   step, rate and place of the workers of `lockstep run`, process 4711\n"
      "  lockstep doctor --cluster              the job that this process would join\n"
      "  lockstep doctor --xla                  the plugins of XLA that programs can run on\n"
      "  lockstep doctor --topology v3-32 --computation-shape 1,1,1,2\n"
      "                                         the coordinates of replicas of two cores in a TPU slice\n"
      "  LOCKSTEP_DUMP=dumps ./train            in a job that hangs: kill -USR1 each worker, then\n"
      "  lockstep doctor dumps/*                which rank the others wait for");
  command->callback([=] {
    const ResultStyle style = *json ? ResultStyle::Json : ResultStyle::Text;
    LOCKSTEP_CHECK_VALUE(files->empty() || (!*cluster && !*xla && topology->topology.empty()),
                         "[doctor] --cluster, --xla and --topology ask no job: JOB=", files->front(), "; leave it out");
    const bool is_job = files->size() == 1 && names_job(files->front());
    if (!is_job) check_watch(*watch, files->empty() ? "is none" : "are FILEs");
    if (!topology->topology.empty()) {
      examine_slice(*topology, style);
    } else if (*cluster) {
      examine_environment(style);
    } else if (*xla) {
      examine_plugins(style);
    } else if (files->empty()) {
      examine_machine(style);
    } else if (is_job) {
      examine_live_job(files->front(), *watch, style);
    } else {
      check_files(*files);
      examine_job(*files, style);
    }
  });
}

}  // namespace lockstep::tools

#include "lockstep/cluster/resolvers/slurm.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/cluster/launcher.h"
#include "lockstep/cluster/slurm_lists.h"

namespace lockstep {
namespace {

constexpr const char* kStartWithSrun = "start the program with srun, inside of an allocation";

struct HostTasks {
  std::string host;
  int num_tasks = 0;
};

/// One rank's place.
struct RankPlace {
  size_t host = 0;
  int local_index = 0;
};

std::string slurm_text(const Environment& variables, const std::string& name) {
  const auto text = variables.get(name);
  LOCKSTEP_CHECK_CONTEXT(text.has_value(), "[environment] the variable is not set: name=", name, "; ", kStartWithSrun);
  return *text;
}

/// Returns the number of a job or a step, or nothing where it is not set. Text in place of a number is an error.
std::optional<int64_t> slurm_id(const Environment& variables, const std::string& name) {
  const auto text = variables.given(name);
  if (!text) return std::nullopt;
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), id);
  LOCKSTEP_CHECK_VALUE(error == std::errc() && end == text->data() + text->size(),
                       "[environment] the variable must be a whole number: ", name, "=\"", *text, "\"");
  return id;
}

std::vector<HostTasks> hosts_of(const SlurmOptions& options) {
  std::vector<HostTasks> hosts;
  for (const auto& [host, num_tasks] : options.tasks_per_node) hosts.push_back({host, num_tasks});
  if (hosts.empty()) {
    const auto names = expand_hostlist(slurm_text(options.variables, "SLURM_STEP_NODELIST"));
    const auto counts = expand_tasks_per_node(slurm_text(options.variables, "SLURM_STEP_TASKS_PER_NODE"));
    for (size_t i = 0; i < std::min(names.size(), counts.size()); ++i) hosts.push_back({names[i], counts[i]});
  }
  std::set<std::string> seen;
  for (const HostTasks& host : hosts) {
    LOCKSTEP_CHECK_VALUE(seen.insert(host.host).second, "[SlurmClusterResolver] a host is listed once: host=\"",
                         host.host, "\"");
  }
  return hosts;
}

/// Deals ranks to hosts: all of one host after the other, or in turns.
std::vector<RankPlace> deal_ranks(const std::vector<HostTasks>& hosts, bool is_cyclic) {
  std::vector<RankPlace> places;
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (int local = 0; local < hosts[host].num_tasks; ++local) places.push_back({host, local});
  }
  if (is_cyclic) {
    std::stable_sort(places.begin(), places.end(),
                     [](const RankPlace& a, const RankPlace& b) { return a.local_index < b.local_index; });
  }
  return places;
}

bool is_cyclic(const Environment& variables) {
  const std::string text = variables.given("SLURM_DISTRIBUTION").value_or("block");
  const std::string nodes = text.substr(0, text.find_first_of(":,"));
  LOCKSTEP_CHECK_VALUE(nodes == "block" || nodes == "cyclic" || nodes == "*",
                       "[SlurmClusterResolver] ranks must be dealt to hosts in blocks or cyclic: SLURM_DISTRIBUTION=\"",
                       text, "\"; start with srun --distribution=block, or describe the cluster in TF_CONFIG");
  return nodes == "cyclic";
}

std::map<std::string, int> jobs_of(const SlurmOptions& options, int num_places) {
  std::map<std::string, int> jobs = options.jobs;
  if (jobs.empty())
    jobs["worker"] = detail::required_number(options.variables, "SLURM_STEP_NUM_TASKS", kStartWithSrun, 1);
  int num_tasks = 0;
  for (const auto& [job, count] : jobs) {
    LOCKSTEP_CHECK_VALUE(count >= 0, "[SlurmClusterResolver] a job has at least 0 tasks: job=\"", job,
                         "\", tasks=", count);
    num_tasks += count;
  }
  LOCKSTEP_CHECK_VALUE(num_tasks == num_places,
                       "[SlurmClusterResolver] jobs must have as many tasks as the step: tasks of jobs=", num_tasks,
                       ", tasks of hosts=", num_places);
  return jobs;
}

/// Counts nvidia0, nvidia1, … in a folder of devices.
int count_cards(const std::string& folder) {
  int count = 0;
  std::error_code ignored;
  while (std::filesystem::exists(folder + "/nvidia" + std::to_string(count), ignored)) ++count;
  return count;
}

/// Returns the ids of a host's GPUs, as CUDA_VISIBLE_DEVICES takes them.
std::vector<std::string> gpus_of_host(const SlurmOptions& options) {
  const auto visible = options.variables.get("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> ids = detail::split_at_commas(visible.value_or(""));
  const int known = visible ? static_cast<int>(ids.size())
                            : detail::optional_number(options.variables, "SLURM_GPUS_ON_NODE")
                                  .value_or(options.gpus_per_node ? 0 : count_cards(options.device_folder));
  const int count = options.gpus_per_node.value_or(known);
  LOCKSTEP_CHECK_VALUE(count >= 0, "[SlurmClusterResolver] a host has at least 0 GPUs: gpus_per_node=", count);
  if (static_cast<int>(ids.size()) == count) return ids;
  ids.clear();
  for (int gpu = 0; gpu < count; ++gpu) ids.push_back(std::to_string(gpu));
  return ids;
}

/// This task's share of its host's GPUs.
struct GpuShare {
  int per_task = 0;
  std::string ids;
};

/// Returns how many GPUs each task was given with --gpus-per-task or --tres-per-task.
std::optional<int> gpus_slurm_gave_a_task(const Environment& variables) {
  if (const auto text = variables.given("SLURM_GPUS_PER_TASK")) return count_resources(*text);
  const auto text = variables.given("SLURM_TRES_PER_TASK");
  return text ? count_resources(*text, "gres/gpu") : std::nullopt;
}

/// Whether --gpu-bind restricts each task to some of the step's GPUs.
bool binds_gpus(const Environment& variables) {
  for (const std::string& word : detail::split_at_commas(variables.given("SLURM_GPU_BIND").value_or(""))) {
    for (const char* kind : {"closest", "single", "per_task", "map_gpu", "mask_gpu"}) {
      if (word.starts_with(kind)) return true;
    }
  }
  return false;
}

/// Whether CUDA_VISIBLE_DEVICES has the GPUs of this task alone, because Slurm has bound GPUs to tasks.
bool sees_own_gpus_alone(const SlurmOptions& options) {
  const auto visible = options.variables.get("CUDA_VISIBLE_DEVICES");
  if (!visible || options.gpus_per_node) return false;
  const auto count = static_cast<int>(detail::split_at_commas(*visible).size());
  const auto given = gpus_slurm_gave_a_task(options.variables);
  return given ? count <= *given : binds_gpus(options.variables);
}

GpuShare share_of_gpus(const SlurmOptions& options, const std::vector<HostTasks>& hosts, int local_index) {
  const std::vector<std::string> gpus = gpus_of_host(options);
  const auto num_gpus = static_cast<int>(gpus.size());
  const bool is_alone = sees_own_gpus_alone(options);
  int most_tasks = 1;
  for (const HostTasks& host : hosts) most_tasks = std::max(most_tasks, is_alone ? 1 : host.num_tasks);
  const int given = gpus_slurm_gave_a_task(options.variables).value_or(0);
  const bool given_fits = given > 0 && static_cast<int64_t>(given) * most_tasks <= num_gpus;
  GpuShare share;
  share.per_task = options.gpus_per_task.value_or(given_fits && !is_alone ? given : num_gpus / most_tasks);
  LOCKSTEP_CHECK_VALUE(share.per_task >= 0 && static_cast<int64_t>(share.per_task) * most_tasks <= num_gpus,
                       "[SlurmClusterResolver] the tasks of a host ask for more GPUs than it has: gpus_per_task=",
                       share.per_task, ", tasks on a host=", most_tasks, ", gpus_per_node=", gpus.size(),
                       is_alone ? "; Slurm has bound GPUs to tasks, and this one sees its own" : "");
  const int first = is_alone ? 0 : local_index * share.per_task;
  for (int i = 0; i < share.per_task; ++i) share.ids += (i == 0 ? "" : ",") + gpus[static_cast<size_t>(first + i)];
  return share;
}

/// The port of the first task of each host, and its source.
struct PortBase {
  int port = 8888;
  std::string source = "port_base";
};

/// Steps on one host must have different ports. Jobs have consecutive numbers, and steps of a job too.
PortBase port_base(const SlurmOptions& options) {
  constexpr int64_t kFirst = 20000;
  constexpr int64_t kCount = 12768;
  constexpr int64_t kBetweenSteps = 1009;  // a prime that does not divide kCount: steps of a job differ
  if (options.port_base) return {*options.port_base, "port_base"};
  const auto job = slurm_id(options.variables, "SLURM_JOB_ID");
  if (!job) return {};
  const auto step = slurm_id(options.variables, "SLURM_STEP_ID");
  const int64_t place = (*job % kCount + step.value_or(0) % kCount * kBetweenSteps) % kCount;
  return {static_cast<int>(kFirst + place), "port of SLURM_JOB_ID, SLURM_STEP_ID"};
}

/// The cluster, and which task of it a rank is.
struct DealtTasks {
  std::map<std::string, TaskAddresses> jobs;
  std::string own_type;
  int own_index = 0;
};

DealtTasks deal_tasks(const SlurmOptions& options, const std::vector<HostTasks>& hosts,
                      const std::vector<RankPlace>& places, int first_port, int own_rank) {
  DealtTasks result;
  int rank = 0;
  for (const auto& [job, count] : jobs_of(options, static_cast<int>(places.size()))) {
    std::vector<std::string> addresses;
    for (int index = 0; index < count; ++index, ++rank) {
      const RankPlace& place = places[rank];
      addresses.push_back(detail::host_and_port(hosts[place.host].host, first_port + place.local_index));
      if (rank == own_rank) {
        result.own_type = job;
        result.own_index = index;
      }
    }
    result.jobs.emplace(job, addresses);
  }
  return result;
}

Resolution resolve(const SlurmOptions& options) {
  const int rank = detail::required_number(options.variables, "SLURM_PROCID", kStartWithSrun);
  const std::vector<HostTasks> hosts = hosts_of(options);
  const std::vector<RankPlace> places = deal_ranks(hosts, is_cyclic(options.variables));
  const PortBase port = port_base(options);
  DealtTasks tasks = deal_tasks(options, hosts, places, port.port, rank);
  LOCKSTEP_CHECK_INDEX(rank < static_cast<int>(places.size()),
                       "[SlurmClusterResolver] a rank is below the number of tasks: SLURM_PROCID=", rank,
                       ", tasks=", places.size());
  const RankPlace& own = places[rank];
  const GpuShare gpus = share_of_gpus(options, hosts, own.local_index);
  const bool asks_for_none = options.gpus_per_node == 0 || options.gpus_per_task == 0;
  const bool is_as_wanted = options.variables.get("CUDA_VISIBLE_DEVICES") == gpus.ids;
  if (options.auto_set_gpu && (gpus.per_task > 0 || asks_for_none) && !is_as_wanted) {
    options.variables.set("CUDA_VISIBLE_DEVICES", gpus.ids);
  }

  Resolution result;
  result.cluster = ClusterSpec(std::move(tasks.jobs));
  result.task_type = tasks.own_type;
  result.task_id = tasks.own_index;
  result.rpc_layer = options.rpc_layer;
  result.local_task = LocalTask{own.local_index, hosts[own.host].num_tasks};
  result.num_accelerators = std::map<std::string, int>{{"GPU", gpus.per_task}};
  const std::string host_source =
      (options.tasks_per_node.empty() ? "SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE + " : "tasks_per_node + ") +
      port.source;
  result.facts = {{"task type", tasks.own_type, options.jobs.empty() ? "all tasks are workers" : "jobs, SLURM_PROCID"},
                  {"task id", std::to_string(tasks.own_index), "SLURM_PROCID"},
                  {"task on this machine", c10::str(own.local_index, " of ", hosts[own.host].num_tasks), host_source},
                  {"GPUs of this task",
                   asks_for_none        ? "none"
                   : gpus.per_task == 0 ? "as the launcher set them"
                                        : gpus.ids,
                   asks_for_none ? "gpus_per_node or gpus_per_task"
                                 : "CUDA_VISIBLE_DEVICES, SLURM_GPUS_ON_NODE or the machine's cards"}};
  const auto facts = detail::task_facts(result.cluster, host_source);
  result.facts.insert(result.facts.end(), facts.begin(), facts.end());
  return result;
}

}  // namespace

SlurmClusterResolver::SlurmClusterResolver(const SlurmOptions& options) : FixedClusterResolver(resolve(options)) {}

}  // namespace lockstep

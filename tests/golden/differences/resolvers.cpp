#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/slurm_lists.h"
#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::resolvers {
namespace {

constexpr const char* kTopic = "resolvers";

bool has_empty_job(const Case& c) {
  const Json cluster = c.field("cluster");
  if (!cluster.is_object()) return false;
  for (const auto& [job, tasks] : cluster.items()) {
    if (tasks.empty()) return true;
  }
  return false;
}

Json without_empty_job(const Case& c) {
  if (c.call == "ClusterSpec") {
    return {{"jobs", {"worker"}},
            {"bool", true},
            {"as_dict", {{"worker", {"w0:1", "w1:1"}}}},
            {"num_tasks", {{"worker", 2}}},
            {"task_indices", {{"worker", {0, 1}}}},
            {"job_tasks", {{"worker", {"w0:1", "w1:1"}}}}};
  }
  Json answer = c.out;
  answer["coordination_leader"] = "/job:worker/replica:0/task:0";
  return answer;
}

Json with_jobs_by_name(const Case& c) {
  Json answer = c.out;
  const std::set<std::string> jobs = c.out.at("jobs");
  answer["jobs"] = jobs;
  return answer;
}

bool has_unsorted_jobs(const Case& c) {
  return c.call == "ClusterSpec" && !c.has_error() && with_jobs_by_name(c) != c.out;
}

Json counted(const Case& c) {
  const Json cluster = c.in.at("cluster");
  const std::string type = c.text("task_type");
  return cluster.contains(type) ? cluster.at(type).size() : 0;
}

/// Errors in all answers but those that arguments of the resolver give.
Json all_errors(const Case& c) {
  const Json error{{"error", {{"type", "TypeError"}}}};
  const auto unless_given = [&](const char* name) {
    return c.in.at("arguments").contains(name) ? c.out.at(name) : error;
  };
  return {{"cluster", error},
          {"task_type", unless_given("task_type")},
          {"task_id", unless_given("task_id")},
          {"rpc_layer", unless_given("rpc_layer")},
          {"environment", c.out.at("environment")},
          {"master", Json(std::vector<Json>(c.out.at("master").size(), error))}};
}

/// A Slurm case that TensorFlow answers: the task is known at once.
Json with_task_from_start(const Case& c) {
  Json answer = c.out;
  answer["before"] = answer.at("task_info");
  return answer;
}

bool has_two_numbers(const Case& c) {
  return c.call == "expand_hostlist" && std::regex_search(c.text("text"), std::regex(R"(\][^,\[\]]*\[)"));
}

/// "n[1-2][3-4]" for one host name with ranges of single digits.
Json all_combinations(const Case& c) {
  std::vector<std::string> names{""};
  const std::string text = c.text("text");
  for (size_t at = 0; at < text.size(); ++at) {
    std::string ends(1, text[at]);
    if (text[at] == '[') {
      if (text.size() < at + 5 || text[at + 2] != '-' || text[at + 4] != ']')
        throw HarnessError("not a range of digits");
      ends.clear();
      for (char digit = text[at + 1]; digit <= text[at + 3]; ++digit) ends += digit;
      at += 4;
    }
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const char end : ends) longer.push_back(name + end);
    }
    names = longer;
  }
  return names;
}

bool is_slurm(const Case& c) { return c.call == "SlurmClusterResolver"; }

/// One task of a Slurm step.
struct SlurmTask {
  std::string address;
  int local_index = 0;
};

/// The hosts of a case and their numbers of tasks, in Slurm's order.
std::vector<std::pair<std::string, int>> slurm_hosts(const Case& c) {
  std::vector<std::pair<std::string, int>> hosts;
  const Json tasks_per_node = c.in.at("arguments").value("tasks_per_node", Json::object());
  for (const auto& [host, count] : tasks_per_node.items()) {
    hosts.emplace_back(host, count);
  }
  const Json& environment = c.in.at("environment");
  if (!hosts.empty() || !environment.contains("SLURM_STEP_NODELIST")) return hosts;
  const auto names = expand_hostlist(environment.at("SLURM_STEP_NODELIST").get<std::string>());
  const auto counts = expand_tasks_per_node(environment.value("SLURM_STEP_TASKS_PER_NODE", "0"));
  for (size_t i = 0; i < std::min(names.size(), counts.size()); ++i) hosts.emplace_back(names[i], counts[i]);
  return hosts;
}

std::vector<SlurmTask> slurm_tasks(const Case& c) {
  std::vector<SlurmTask> tasks;
  for (const auto& [host, count] : slurm_hosts(c)) {
    for (int i = 0; i < count; ++i) {
      tasks.push_back({host + ":" + std::to_string(c.in.at("arguments").value("port_base", 8888) + i), i});
    }
  }
  return tasks;
}

/// The GPUs of a host, as TensorFlow counts them; nothing where it fails because there is no driver.
std::vector<std::string> slurm_gpus(const Case& c) {
  std::vector<std::string> ids;
  std::istringstream visible(c.in.at("environment").value("CUDA_VISIBLE_DEVICES", ""));
  for (std::string id; std::getline(visible, id, ',');) ids.push_back(id);
  const Json per_node = c.in.at("arguments").value("gpus_per_node", Json());
  if (per_node.is_null() || per_node == ids.size()) return ids;
  ids.clear();
  for (int i = 0; i < per_node; ++i) ids.push_back(std::to_string(i));
  return ids;
}

int slurm_gpus_per_task(const Case& c) {
  int most = 1;
  for (const auto& [host, count] : slurm_hosts(c)) most = std::max(most, count);
  const Json per_task = c.in.at("arguments").value("gpus_per_task", Json());
  return per_task.is_null() ? static_cast<int>(slurm_gpus(c).size()) / most : per_task.get<int>();
}

/// What CUDA_VISIBLE_DEVICES of a task is afterwards.
Json visible_devices(const Case& c, int local_index) {
  const Json& arguments = c.in.at("arguments");
  const Json before = c.in.at("environment").value("CUDA_VISIBLE_DEVICES", Json());
  const int per_task = slurm_gpus_per_task(c);
  const bool asks_for_none =
      arguments.value("gpus_per_node", Json()) == 0 || arguments.value("gpus_per_task", Json()) == 0;
  if (!arguments.value("auto_set_gpu", true) || (per_task == 0 && !asks_for_none)) return before;
  std::string ids;
  for (int i = 0; i < per_task; ++i) ids += (i == 0 ? "" : ",") + slurm_gpus(c)[local_index * per_task + i];
  return ids;
}

/// The whole answer of a Slurm case: hosts in Slurm's order, a task's share of the GPUs, jobs in the order of names.
Json slurm_answer(const Case& c) {
  const Json& arguments = c.in.at("arguments");
  const std::vector<SlurmTask> tasks = slurm_tasks(c);
  const size_t own = std::stoul(c.in.at("environment").at("SLURM_PROCID").get<std::string>());
  const Json jobs = arguments.value("jobs", Json{{"worker", tasks.size()}});
  const Json layer = arguments.contains("rpc_layer") ? arguments.at("rpc_layer") : Json("grpc");
  const auto url = [](const Json& protocol, const std::string& address) {
    return protocol.is_null() ? address : protocol.get<std::string>() + "://" + address;
  };
  Json answer;
  size_t rank = 0;
  for (const auto& [job, count] : jobs.items()) {
    for (int index = 0; index < count; ++index, ++rank) {
      answer["cluster"][job][std::to_string(index)] = tasks.at(rank).address;
      if (rank == own) answer["task_info"] = {job, index};
    }
  }
  const std::string first_worker = answer.at("cluster").at("worker").at("0");
  answer["before"] = answer.at("task_info");
  answer["rpc_layer"] = layer;
  answer["num_accelerators"] = {{"GPU", slurm_gpus_per_task(c)}};
  answer["CUDA_VISIBLE_DEVICES"] = visible_devices(c, tasks.at(own).local_index);
  answer["master"] = url(layer, tasks.at(own).address);
  answer["master_worker_0"] = url(layer, first_worker);
  answer["master_worker_0_rpc"] = url("test", first_worker);
  return answer;
}

/// Whether TensorFlow has no GPUs to give to tasks, on which it fails.
bool has_no_gpus(const Case& c) {
  if (!is_slurm(c) || !c.in.at("environment").contains("SLURM_PROCID")) return false;
  if (c.has_error() && !is_one_of(c.error_type, {"FileNotFoundError", "ValueError"})) return false;
  return !slurm_tasks(c).empty() && slurm_gpus_per_task(c) == 0;
}

bool has_unsorted_hosts(const Case& c) {
  if (!is_slurm(c) || c.has_error()) return false;
  const auto hosts = slurm_hosts(c);
  return !std::is_sorted(hosts.begin(), hosts.end());
}

void add_specs(std::vector<Difference>& table) {
  table.push_back({"job without tasks", kTopic, has_empty_job,
                   "is a job, and as_dict fails with an error of Python's max()", "is not a job",
                   "templates produce such jobs, and a job without tasks has no leader",
                   expect_value(without_empty_job)});
  table.push_back({"order of jobs", kTopic, has_unsorted_jobs, "order of the Python mapping", "order of the names",
                   "a C++ map is ordered by name; equal clusters print equally", expect_value(with_jobs_by_name)});
  table.push_back({"negative index", kTopic,
                   [](const Case& c) { return c.text("repr").find("{-") != std::string::npos; }, "accepts task -1",
                   "ValueError", "tasks are numbered from 0", expect_error("ValueError", "[ClusterSpec]")});
  table.push_back({"task_count of a mapping", kTopic, [](const Case& c) { return c.call == "task_count"; },
                   "AttributeError: accepts only a ClusterSpec", "the number of tasks",
                   "a mapping converts to a ClusterSpec", expect_value(counted)});
  table.push_back({"TF_CONFIG that is a list", kTopic,
                   [](const Case& c) {
                     return c.call == "TFConfigClusterResolver" &&
                            c.in.at("environment").value("TF_CONFIG", "").starts_with("[");
                   },
                   "treats an empty list as an empty object", "TypeError in every call that reads it",
                   "a list is a mistake", expect_value(all_errors)});
}

void add_slurm(std::vector<Difference>& table) {
  table.push_back({"two numbers in a host name", kTopic, has_two_numbers, "ValueError",
                   "all combinations; the last number changes fastest", "Slurm itself writes such lists",
                   expect_value(all_combinations)});
  table.push_back(
      {"space in a list of hosts", kTopic,
       [](const Case& c) { return c.call == "expand_hostlist" && c.text("text").find(' ') != std::string::npos; },
       "treats the space as a digit: n01, n02", "ValueError", "Slurm writes no spaces",
       expect_error("ValueError", "[expand_hostlist]")});
  table.push_back({"Slurm without GPUs", kTopic, has_no_gpus,
                   "fails, or treats an empty CUDA_VISIBLE_DEVICES as one GPU", "the cluster, without GPUs",
                   "training on CPUs needs no GPUs", expect_value(slurm_answer)});
  table.push_back({"order of Slurm hosts", kTopic, has_unsorted_hosts,
                   "sorts hosts as strings, so that n10 comes before n9 and tasks get addresses of other machines",
                   "hosts in Slurm's order, which is the order of the ranks",
                   "the address of a task must be that of its machine", expect_value(slurm_answer)});
  table.push_back({"task before cluster_spec", kTopic, [](const Case& c) { return is_slurm(c) && !c.has_error(); },
                   "type and id are None until cluster_spec is called", "available from the start",
                   "the order of two calls must not matter", expect_value(with_task_from_start)});
}

}  // namespace

void add(std::vector<Difference>& table) {
  add_specs(table);
  add_slurm(table);
  table.push_back({"protocol of a TPU", kTopic,
                   [](const Case& c) { return c.call == "TPUClusterResolver" && !c.has_error(); },
                   "AttributeError: the object has no rpc_layer", "grpc, as in its master",
                   "every resolver has a protocol", expect_value([](const Case& c) {
                     Json answer = c.out;
                     answer["rpc_layer"] = "grpc";
                     return answer;
                   })});
}

}  // namespace lockstep::golden::rules::resolvers

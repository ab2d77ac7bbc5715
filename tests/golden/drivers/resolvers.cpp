#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/cluster_spec.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolvers/sagemaker.h"
#include "lockstep/cluster/resolvers/simple.h"
#include "lockstep/cluster/resolvers/slurm.h"
#include "lockstep/cluster/resolvers/tf_config.h"
#include "lockstep/cluster/resolvers/tpu.h"
#include "lockstep/cluster/resolvers/union.h"
#include "lockstep/cluster/slurm_lists.h"
#include "tests/golden/drivers.h"

namespace lockstep::golden::drivers::resolvers {
namespace {

/// Returns what the function answers, or its error: the topic has errors inside of answers.
Json answer_of(const std::function<Json()>& ask) {
  const Outcome outcome = run_driver([&](const Case&) { return Outcome::of_value(ask()); }, Case());
  if (outcome.kind == Outcome::Kind::Value) return outcome.value;
  return {{"error", {{"type", outcome.type}, {"message", outcome.text}}}};
}

template <typename T>
std::optional<T> optional_of(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

template <typename T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// TensorFlow has None where lockstep has no text.
Json none_for_empty(const std::string& text) { return text.empty() ? Json() : Json(text); }

ClusterSpec cluster_of(const Json& jobs) { return ClusterSpec::from_json(jobs.dump()); }

Json indexed(const ClusterSpec& cluster) {
  Json result = Json::object();
  for (const auto& [job, tasks] : cluster.as_dict()) {
    for (const auto& [index, address] : tasks.by_index()) result[job][std::to_string(index)] = address;
  }
  return result;
}

Json tasks_of(const ClusterSpec& cluster, const std::string& job) {
  Json result = Json::array();
  for (const auto& address : cluster.job_tasks(job)) result.push_back(json_of(address));
  return result;
}

Json described(const ClusterSpec& cluster) {
  Json result{
      {"jobs", cluster.jobs()},      {"bool", static_cast<bool>(cluster)}, {"as_dict", Json::parse(cluster.to_json())},
      {"num_tasks", Json::object()}, {"task_indices", Json::object()},     {"job_tasks", Json::object()}};
  for (const std::string& job : cluster.jobs()) {
    result["num_tasks"][job] = cluster.num_tasks(job);
    result["task_indices"][job] = cluster.task_indices(job);
    result["job_tasks"][job] = tasks_of(cluster, job);
  }
  return result;
}

/// A Python literal that is no cluster, as JSON where that can say it: texts in double quotes, bytes as texts, numbers
/// of tasks as keys.
Json run_wrong_cluster(const std::string& literal) {
  if (std::regex_search(literal, std::regex(R"(^\{-?\d+:)"))) throw DoesNotCompile("the name of a job is a text");
  std::string text = std::regex_replace(literal, std::regex(R"(b?'([^']*)')"), R"("$1")");
  text = std::regex_replace(text, std::regex(R"(([{,] ?)(-?\d+):)"), R"($1"$2":)");
  text = std::regex_replace(text, std::regex("None"), "null");
  return indexed(ClusterSpec::from_json(text));
}

Json run_spec_call(const Case& c) {
  if (c.call == "ClusterSpec_wrong") return run_wrong_cluster(c.text("repr"));
  if (c.call == "ClusterSpec_equal") return cluster_of(c.in.at("a")) == cluster_of(c.in.at("b"));
  if (c.call == "normalize_cluster_spec") return indexed(cluster_of(c.in.at("value")));
  const ClusterSpec cluster = cluster_of(c.in.at("cluster"));
  if (c.call == "ClusterSpec") return described(cluster);
  if (c.call == "task_address") return cluster.task_address(c.text("job"), c.in.at("index"));
  if (c.call == "job_tasks") return tasks_of(cluster, c.text("job"));
  if (c.call == "num_tasks") return cluster.num_tasks(c.text("job"));
  return task_count(cluster, optional_of<std::string>(c.field("task_type")));
}

Json run_rules(const Case& c) {
  const ClusterSpec cluster = cluster_of(c.in.at("cluster"));
  const auto type = optional_of<std::string>(c.field("task_type"));
  const auto id = optional_of<int>(c.field("task_id"));
  return {{"is_chief", answer_of([&] { return Json(is_chief(cluster, type, id)); })},
          {"worker_count", answer_of([&] { return Json(worker_count(cluster, type)); })},
          {"id_in_cluster", answer_of([&] { return Json(id_in_cluster(cluster, type, id)); })},
          {"collective_leader", answer_of([&] { return Json(collective_leader(cluster, type, id)); })},
          {"coordination_leader", answer_of([&] { return Json(coordination_leader(cluster)); })}};
}

struct MasterCall {
  TaskType task_type;
  TaskId task_id;
  std::string rpc_layer{};
};

/// The calls that `master_calls` of a case lists: "none; worker,1; ps,0,rpc test; worker,none".
std::vector<MasterCall> master_calls(const Case& c) {
  static const std::regex call(R"((\w+)(?:,(\w+))?(?:,rpc (\w+))?(?:; |$))");
  const std::string text = std::regex_replace(c.text("master_calls"), std::regex(R"(^master\(\): )"), "");
  std::vector<MasterCall> calls;
  size_t num_read = 0;
  for (std::sregex_iterator one(text.begin(), text.end(), call), end; one != end; ++one) {
    const std::string type = (*one)[1];
    const std::string id = (*one)[2];
    const bool has_id = !id.empty() && id != "none";
    calls.push_back(
        {type == "none" ? TaskType() : TaskType(type), has_id ? TaskId(std::stoi(id)) : TaskId(), (*one)[3].str()});
    num_read += static_cast<size_t>(one->length());
  }
  if (num_read != text.size()) throw HarnessError("[resolvers] unknown master calls: " + text);
  return calls;
}

/// What all resolvers answer, but for `environment`.
Json answers_of(const ClusterResolver& resolver, const Case& c) {
  Json masters = Json::array();
  for (const MasterCall& call : master_calls(c)) {
    masters.push_back(answer_of([&] { return Json(resolver.master(call.task_type, call.task_id, call.rpc_layer)); }));
  }
  return {{"cluster", answer_of([&] { return indexed(resolver.cluster_spec()); })},
          {"task_type", answer_of([&] { return json_of(resolver.task_type()); })},
          {"task_id", answer_of([&] { return json_of(resolver.task_id()); })},
          {"rpc_layer", answer_of([&] { return none_for_empty(resolver.rpc_layer()); })},
          {"master", masters}};
}

Environment environment_of(const Case& c) {
  return Environment(c.in.at("environment").get<std::map<std::string, std::string>>());
}

std::string text_in(const Json& arguments, const char* name) {
  const Json value = arguments.value(name, Json());
  return value.is_null() ? "" : value.get<std::string>();
}

template <typename T>
std::optional<T> optional_in(const Json& arguments, const char* name) {
  return optional_of<T>(arguments.value(name, Json()));
}

/// Returns the arguments of a case; throws where the driver would drop one.
const Json& known_arguments(const Case& c, std::initializer_list<std::string_view> names) {
  const Json& arguments = c.in.at("arguments");
  for (const auto& [name, value] : arguments.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw HarnessError("[resolvers] unknown argument: " + name);
    }
  }
  return arguments;
}

Json run_tf_config(const Case& c) {
  const Json& arguments = known_arguments(c, {"task_type", "task_id", "rpc_layer", "environment"});
  const TFConfigClusterResolver resolver({.task_type = optional_in<std::string>(arguments, "task_type"),
                                          .task_id = optional_in<int>(arguments, "task_id"),
                                          .rpc_layer = text_in(arguments, "rpc_layer"),
                                          .environment = text_in(arguments, "environment"),
                                          .variables = environment_of(c)});
  Json result = answers_of(resolver, c);
  result["environment"] = none_for_empty(resolver.environment());
  return result;
}

Json run_simple(const Case& c) {
  const Json& arguments =
      known_arguments(c, {"master", "task_type", "task_id", "environment", "num_accelerators", "rpc_layer"});
  const SimpleClusterResolver resolver(
      cluster_of(c.in.at("cluster")),
      {.master = text_in(arguments, "master"),
       .task_type = optional_in<std::string>(arguments, "task_type"),
       .task_id = optional_in<int>(arguments, "task_id"),
       .environment = text_in(arguments, "environment"),
       .num_accelerators = arguments.value("num_accelerators", std::map<std::string, int>()),
       .rpc_layer = text_in(arguments, "rpc_layer")});
  Json result = answers_of(resolver, c);
  result["environment"] = resolver.environment();
  result["num_accelerators"] = resolver.num_accelerators();
  return result;
}

/// Makes resolver k as the field `resolver_k` of a case says.
std::shared_ptr<ClusterResolver> part_of_union(const Json& cluster, int k) {
  const std::string number = std::to_string(k);
  return std::make_shared<SimpleClusterResolver>(cluster_of(cluster),
                                                 SimpleOptions{.master = "m" + number,
                                                               .task_type = k == 0 ? "ps" : "worker",
                                                               .task_id = k + 1,
                                                               .environment = "e" + number,
                                                               .num_accelerators = {{"GPU", k + 3}}});
}

bool is_one_of_union(const std::string& name) {
  return name == "task_type" || name == "task_id" || name == "rpc_layer";
}

Json run_union(const Case& c) {
  const Json& arguments = c.in.at("arguments");
  for (const auto& [name, value] : arguments.items()) {
    if (!is_one_of_union(name)) throw DoesNotCompile("options have no field " + name);
  }
  std::vector<std::shared_ptr<ClusterResolver>> parts;
  for (const Json& cluster : c.in.at("clusters"))
    parts.push_back(part_of_union(cluster, static_cast<int>(parts.size())));
  const UnionClusterResolver resolver(parts, {.task_type = optional_in<std::string>(arguments, "task_type"),
                                              .task_id = optional_in<int>(arguments, "task_id"),
                                              .rpc_layer = text_in(arguments, "rpc_layer")});
  Json result = answers_of(resolver, c);
  result["environment"] = resolver.environment();
  result["num_accelerators"] = resolver.num_accelerators();
  return result;
}

SlurmOptions slurm_options_of(const Case& c) {
  const Json& arguments = known_arguments(
      c, {"jobs", "port_base", "gpus_per_node", "gpus_per_task", "auto_set_gpu", "rpc_layer", "tasks_per_node"});
  SlurmOptions options;
  options.jobs = arguments.value("jobs", options.jobs);
  options.port_base = optional_in<int>(arguments, "port_base");
  options.gpus_per_node = optional_in<int>(arguments, "gpus_per_node");
  options.gpus_per_task = optional_in<int>(arguments, "gpus_per_task");
  options.auto_set_gpu = arguments.value("auto_set_gpu", true);
  if (arguments.contains("rpc_layer")) options.rpc_layer = text_in(arguments, "rpc_layer");
  const Json tasks_per_node = arguments.value("tasks_per_node", Json::object());
  for (const auto& [host, count] : tasks_per_node.items()) {
    options.tasks_per_node.emplace_back(host, count);
  }
  options.variables = environment_of(c);
  options.device_folder = "";  // TensorFlow ran where there is no GPU
  return options;
}

Json run_slurm(const Case& c) {
  const SlurmOptions options = slurm_options_of(c);
  const SlurmClusterResolver resolver(options);
  const Json before{json_of(resolver.task_type()), json_of(resolver.task_id())};
  return {{"before", before},
          {"cluster", indexed(resolver.cluster_spec())},
          {"task_info", {json_of(resolver.task_type()), json_of(resolver.task_id())}},
          {"rpc_layer", none_for_empty(resolver.rpc_layer())},
          {"num_accelerators", resolver.num_accelerators()},
          {"CUDA_VISIBLE_DEVICES", json_of(options.variables.get("CUDA_VISIBLE_DEVICES"))},
          {"master", resolver.master()},
          {"master_worker_0", resolver.master("worker", 0)},
          {"master_worker_0_rpc", resolver.master("worker", 0, "test")}};
}

Json run_sagemaker(const Case& c) {
  const Json& arguments = known_arguments(c, {"port", "task_type", "task_id", "rpc_layer", "environment"});
  const SageMakerClusterResolver resolver({.port = arguments.value("port", SageMakerOptions().port),
                                           .task_type = optional_in<std::string>(arguments, "task_type"),
                                           .task_id = optional_in<int>(arguments, "task_id"),
                                           .rpc_layer = text_in(arguments, "rpc_layer"),
                                           .environment = text_in(arguments, "environment"),
                                           .variables = environment_of(c)});
  Json result = answers_of(resolver, c);
  result["environment"] = none_for_empty(resolver.environment());
  return result;
}

Json run_tpu(const Case& c) {
  const Json& arguments =
      known_arguments(c, {"tpu", "zone", "project", "job_name", "coordinator_name", "coordinator_address"});
  const TPUClusterResolver resolver({.tpu = text_in(arguments, "tpu"),
                                     .zone = text_in(arguments, "zone"),
                                     .project = text_in(arguments, "project"),
                                     .job_name = arguments.value("job_name", TPUOptions().job_name),
                                     .coordinator_name = text_in(arguments, "coordinator_name"),
                                     .coordinator_address = text_in(arguments, "coordinator_address"),
                                     .variables = environment_of(c)});
  return {{"cluster", indexed(resolver.cluster_spec())},
          {"task_type", json_of(resolver.task_type())},
          {"task_id", json_of(resolver.task_id())},
          {"rpc_layer", resolver.rpc_layer()},
          {"environment", resolver.environment()},
          {"master", resolver.master()},
          {"get_master", resolver.master()},
          {"get_job_name", json_of(resolver.task_type())}};
}

}  // namespace

Outcome run(const Case& test_case) {
  static const std::map<std::string, Json (*)(const Case&)> runs{
      {"multi_worker_util", run_rules},
      {"TFConfigClusterResolver", run_tf_config},
      {"SimpleClusterResolver", run_simple},
      {"UnionClusterResolver", run_union},
      {"SlurmClusterResolver", run_slurm},
      {"SageMakerClusterResolver", run_sagemaker},
      {"TPUClusterResolver", run_tpu},
      {"expand_hostlist", [](const Case& c) { return Json(expand_hostlist(c.text("text"))); }},
      {"expand_tasks_per_node", [](const Case& c) { return Json(expand_tasks_per_node(c.text("text"))); }}};
  if (test_case.call == "SimpleClusterResolver_wrong" || test_case.call == "UnionClusterResolver_wrong") {
    return Outcome::does_not_compile("the arguments have types");
  }
  const auto found = runs.find(test_case.call);
  return Outcome::of_value(found == runs.end() ? run_spec_call(test_case) : found->second(test_case));
}

}  // namespace lockstep::golden::drivers::resolvers

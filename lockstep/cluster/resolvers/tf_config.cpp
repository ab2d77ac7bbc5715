#include "lockstep/cluster/resolvers/tf_config.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/cluster/json_text.h"

namespace lockstep {
namespace {

using detail::Json;

constexpr const char* kVariable = "TF_CONFIG";
constexpr const char* kForm =
    R"(; write {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}})";

Json config_of(const Environment& variables) {
  const auto text = variables.get(kVariable);
  if (!text) return Json::object();
  LOCKSTEP_CHECK_VALUE(!text->empty(), "[TF_CONFIG] the variable must be JSON: it is set and empty; unset it", kForm);
  Json config = detail::parse_json(kVariable, *text);
  LOCKSTEP_CHECK_TYPE(config.is_object(), "[TF_CONFIG] the variable must be a JSON object: TF_CONFIG=", *text, kForm);
  return config;
}

/// Returns the field of "task", null where it is left out.
Json task_field(const Json& config, const char* name) {
  if (!config.contains("task")) return {};
  const Json& task = config["task"];
  LOCKSTEP_CHECK_TYPE(task.is_object(), "[TF_CONFIG] the task must be an object: task=", task.dump(), kForm);
  return task.contains(name) ? task[name] : Json();
}

TaskType type_of(const Json& config) {
  const Json type = task_field(config, "type");
  if (type.is_null()) return std::nullopt;
  LOCKSTEP_CHECK_TYPE(type.is_primitive(), "[TF_CONFIG] the task's type must be a text: type=", type.dump(), kForm);
  return type.is_string() ? type.get<std::string>() : type.dump();
}

/// Reads whole numbers, numbers with a fraction, which is dropped, and numbers as text.
TaskId index_of(const Json& config) {
  const Json index = task_field(config, "index");
  if (index.is_null()) return std::nullopt;
  if (index.is_number()) {
    const double value = std::trunc(index.get<double>());
    LOCKSTEP_CHECK_VALUE(std::abs(value) <= 1e9, "[TF_CONFIG] the task's index is too large: index=", index.dump());
    return static_cast<int>(value);
  }
  LOCKSTEP_CHECK_TYPE(index.is_string(), "[TF_CONFIG] the task's index must be a number: index=", index.dump(), kForm);
  const std::string text = index;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  LOCKSTEP_CHECK_VALUE(error == std::errc() && end == text.data() + text.size() && !text.empty(),
                       "[TF_CONFIG] the task's index must be a number: index=\"", text, "\"", kForm);
  return value;
}

std::string text_of(const Json& config, const char* name) {
  if (!config.contains(name) || config[name].is_null()) return "";
  LOCKSTEP_CHECK_TYPE(config[name].is_string(), "[TF_CONFIG] the field must be a text: ", name, "=",
                      config[name].dump());
  return config[name];
}

ClusterSpec cluster_of(const Json& config) {
  return config.contains("cluster") ? detail::cluster_from_json(kVariable, config["cluster"]) : ClusterSpec();
}

/// A fact where there is a value: from the option where that is given, else from TF_CONFIG.
void add_fact(std::vector<ClusterFact>& facts, const std::string& field, const std::string& value, bool is_option) {
  if (!value.empty()) facts.push_back({field, value, is_option ? "argument of the resolver" : kVariable});
}

}  // namespace

TFConfigClusterResolver::TFConfigClusterResolver(TFConfigOptions options) : options_(std::move(options)) {}

ClusterSpec TFConfigClusterResolver::cluster_spec() const { return cluster_of(config_of(options_.variables)); }

TaskType TFConfigClusterResolver::task_type() const {
  return options_.task_type ? options_.task_type : type_of(config_of(options_.variables));
}

TaskId TFConfigClusterResolver::task_id() const {
  return options_.task_id ? options_.task_id : index_of(config_of(options_.variables));
}

std::string TFConfigClusterResolver::rpc_layer() const {
  return options_.rpc_layer.empty() ? text_of(config_of(options_.variables), "rpc_layer") : options_.rpc_layer;
}

std::string TFConfigClusterResolver::do_master(const TaskType& task_type, TaskId task_id,
                                               const std::string& rpc_layer) const {
  const Json config = config_of(options_.variables);
  if (config.contains("session_master")) return text_of(config, "session_master");
  const ClusterSpec cluster = cluster_of(config);
  return detail::master_of_task(*this, cluster, task_type, task_id, rpc_layer);
}

std::vector<ClusterFact> TFConfigClusterResolver::facts() const {
  const TaskId id = task_id();
  std::vector<ClusterFact> facts;
  add_fact(facts, "task type", task_type().value_or(""), options_.task_type.has_value());
  add_fact(facts, "task id", id ? std::to_string(*id) : "", options_.task_id.has_value());
  add_fact(facts, "protocol", rpc_layer(), !options_.rpc_layer.empty());
  const auto tasks = detail::task_facts(cluster_spec(), kVariable);
  facts.insert(facts.end(), tasks.begin(), tasks.end());
  return facts;
}

}  // namespace lockstep

#include "tools/doctor/doctor_cluster.h"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolve_cluster.h"

namespace lockstep::tools {
namespace {

/// Replicas of each worker: one for each accelerator, else one on the CPU.
int replicas_of_worker(const ClusterResolver& resolver) {
  int count = 0;
  for (const auto& [type, number] : resolver.num_accelerators()) count = std::max(count, number);
  return std::max(count, 1);
}

/// Returns "2" or "4 … 7": the replicas of a task that trains, nothing for others.
Json replicas_of(const ClusterSpec& cluster, const std::string& job, int index, int per_worker) {
  if (job != "chief" && job != "worker") return {};
  const int first = id_in_cluster(cluster, job, index) * per_worker;
  const std::string text = std::to_string(first);
  return per_worker == 1 ? text : text + " … " + std::to_string(first + per_worker - 1);
}

Json tasks_of(const ClusterResolver& resolver) {
  const ClusterSpec cluster = resolver.cluster_spec();
  const int per_worker = replicas_of_worker(resolver);
  Json tasks = Json::array();
  for (const auto& [job, addresses] : cluster.as_dict()) {
    for (const auto& [index, address] : addresses.by_index()) {
      tasks.push_back({{"task", job + " " + std::to_string(index)},
                       {"address", address.empty() ? Json() : Json(address)},
                       {"is_me", resolver.task_type() == job && resolver.task_id() == index},
                       {"is_chief", job != "evaluator" && is_chief(cluster, job, index)},
                       {"replicas", replicas_of(cluster, job, index, per_worker)}});
    }
  }
  return tasks;
}

Json facts_of(const ClusterResolver& resolver) {
  Json facts = Json::array();
  for (const ClusterFact& fact : resolver.facts()) {
    facts.push_back({{"field", fact.field}, {"value", fact.value}, {"source", fact.source}});
  }
  return facts;
}

void add_cluster(Json& result, const ClusterResolver& resolver) {
  if (!resolver.cluster_spec()) return;
  result["facts"] = facts_of(resolver);
  result["tasks"] = tasks_of(resolver);
  result["master"] = resolver.master();
  if (resolver.task_type() == "ps") return;
  if (const auto place = worker_place(resolver)) {
    result["place"] = {
        {"index", place->index}, {"num_workers", place->num_workers}, {"coordinator", place->coordinator}};
  }
}

void print_looked_for(const Json& looked_for, std::ostream& out) {
  out << "looked for:\n";
  for (const Json& candidate : looked_for) {
    out << "  " << candidate["name"].get<std::string>() << ": " << (candidate["is_chosen"] ? "taken, " : "no, ")
        << candidate["reason"].get<std::string>() << '\n';
  }
}

void print_tasks(const Json& tasks, std::ostream& out) {
  size_t width = 0;
  for (const Json& task : tasks) width = std::max(width, task["task"].get<std::string>().size());
  size_t address_width = 0;
  for (const Json& task : tasks) {
    if (task["address"].is_string()) address_width = std::max(address_width, task["address"].get<std::string>().size());
  }
  out << "tasks:\n";
  for (const Json& task : tasks) {
    const std::string address = task["address"].is_string() ? task["address"].get<std::string>() : "?";
    out << "  " << std::left << std::setw(static_cast<int>(width)) << task["task"].get<std::string>() << "  "
        << std::setw(static_cast<int>(address_width)) << address;
    if (task["replicas"].is_string()) out << "  replica " << task["replicas"].get<std::string>();
    if (task["is_chief"]) out << "  chief";
    if (task["is_me"]) out << "  <- this process";
    out << '\n';
  }
}

void print_facts(const Json& facts, std::ostream& out) {
  out << "where from:\n";
  for (const Json& fact : facts) {
    const std::string value = fact["value"];
    out << "  " << fact["field"].get<std::string>() << " = " << (value.empty() ? "?" : value) << "  ("
        << fact["source"].get<std::string>() << ")\n";
  }
}

}  // namespace

Json examine_cluster(const Environment& variables) {
  Json result{{"looked_for", Json::array()}};
  try {
    const ClusterChoice choice = choose_cluster(variables);
    for (const ClusterCandidate& candidate : choice.candidates) {
      result["looked_for"].push_back(
          {{"name", candidate.name}, {"is_chosen", candidate.is_chosen}, {"reason", candidate.reason}});
    }
    add_cluster(result, *choice.resolver);
  } catch (const c10::Error& error) {
    result["error"] = error.what_without_backtrace();
    result["hint"] = "docs/clusters.md has an example for each launcher; unset the variable to run alone";
  }
  return result;
}

void print_cluster(const Json& result, std::ostream& out) {
  if (!result["looked_for"].empty()) print_looked_for(result["looked_for"], out);
  if (result.contains("facts")) print_facts(result["facts"], out);
  if (result.contains("tasks")) print_tasks(result["tasks"], out);
  if (result.value("master", "") != "") out << "master: " << result["master"].get<std::string>() << '\n';
  if (result.contains("place")) {
    const Json& place = result["place"];
    out << "this process: worker " << place["index"] << " of " << place["num_workers"] << ", joins at "
        << place["coordinator"].get<std::string>() << '\n';
  }
  if (result.contains("error")) {
    out << "error: " << result["error"].get<std::string>() << "\nhint: " << result["hint"].get<std::string>() << '\n';
  } else if (!result.contains("tasks")) {
    out << "no cluster: this process runs alone\n";
  }
}

}  // namespace lockstep::tools

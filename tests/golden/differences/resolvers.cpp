#include <set>
#include <string>
#include <vector>

#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::resolvers {
namespace {

constexpr const char* kTopic = "resolvers";

bool has_id(const Case& c, const std::set<std::string>& ids) { return ids.contains(c.id); }

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

Json all_errors(const Case& c) {
  const Json error{{"error", {{"type", "TypeError"}}}};
  return {{"cluster", error},
          {"task_type", error},
          {"task_id", error},
          {"rpc_layer", error},
          {"environment", c.out.at("environment")},
          {"master", Json(std::vector<Json>(c.out.at("master").size(), error))}};
}

/// A Slurm case that TensorFlow answers: the task is known at once.
Json with_task_from_start(const Case& c) {
  Json answer = c.out;
  answer["before"] = answer.at("task_info");
  return answer;
}

Json without_gpus(const Case& c) {
  Json answer{{"rpc_layer", "grpc"},
              {"task_info", {"worker", 0}},
              {"before", {"worker", 0}},
              {"num_accelerators", {{"GPU", 0}}},
              {"CUDA_VISIBLE_DEVICES", c.in.at("environment").value("CUDA_VISIBLE_DEVICES", Json())},
              {"master", "grpc://t02n13:8888"},
              {"master_worker_0", "grpc://t02n13:8888"},
              {"master_worker_0_rpc", "test://t02n13:8888"}};
  answer["cluster"]["worker"] = {{"0", "t02n13:8888"}, {"1", "t02n41:8888"}, {"2", "t02n43:8888"}};
  if (c.id == "slurm/fewer_gpus_than_tasks") {
    answer["cluster"]["worker"] = {{"0", "t02n13:8888"}, {"1", "t02n13:8889"}, {"2", "t02n41:8888"},
                                   {"3", "t02n41:8889"}, {"4", "t02n43:8888"}, {"5", "t02n43:8889"}};
  }
  return answer;
}

/// The answers where hosts are not in the order of the alphabet.
Json in_listed_order(const Case& c) {
  Json answer = with_task_from_start(c);
  if (c.id == "slurm/sorted_hosts") {
    answer["cluster"]["worker"] = {{"0", "n10:8888"}, {"1", "n9:8888"}, {"2", "n1:8888"}};
    answer["master"] = answer["master_worker_0"] = "grpc://n10:8888";
    answer["master_worker_0_rpc"] = "test://n10:8888";
    return answer;
  }
  answer["cluster"]["worker"] = {{"0", "b:8888"}, {"1", "b:8889"}, {"2", "a:8888"}, {"3", "c:8888"}};
  answer["CUDA_VISIBLE_DEVICES"] = "1";
  answer["master"] = "grpc://b:8889";
  answer["master_worker_0"] = "grpc://b:8888";
  answer["master_worker_0_rpc"] = "test://b:8888";
  return answer;
}

void add_specs(std::vector<Difference>& table) {
  table.push_back({"job without tasks", kTopic, has_empty_job,
                   "counts as a job, and as_dict fails with an error of Python's max()", "is no job",
                   "templates leave such jobs behind; a leader that does not exist leads nobody",
                   expect_value(without_empty_job)});
  table.push_back({"order of jobs", kTopic, has_unsorted_jobs, "that of the Python mapping", "that of the names",
                   "a C++ map has no other; equal clusters read the same", expect_value(with_jobs_by_name)});
  table.push_back({"negative index", kTopic, [](const Case& c) { return c.text("name") == "negative_index"; },
                   "accepts task -1", "ValueError", "tasks are numbered from 0",
                   expect_error("ValueError", "[ClusterSpec]")});
  table.push_back({"task_count of a mapping", kTopic, [](const Case& c) { return c.call == "task_count"; },
                   "AttributeError: takes a ClusterSpec only", "the number of tasks", "a mapping is a ClusterSpec",
                   expect_value(counted)});
  table.push_back({"TF_CONFIG that is a list", kTopic, [](const Case& c) { return has_id(c, {"tf_config/list/{}"}); },
                   "takes an empty list for an empty object", "TypeError at every call that reads it",
                   "whoever wrote it meant something else", expect_value(all_errors)});
}

void add_slurm(std::vector<Difference>& table) {
  table.push_back({"two numbers in a host's name", kTopic,
                   [](const Case& c) { return has_id(c, {"hostlist/'n[1-2][3-4]'"}); }, "ValueError",
                   "all combinations, the last number counting fastest", "Slurm itself writes such lists",
                   expect_value([](const Case&) {
                     return Json{"n13", "n14", "n23", "n24"};
                   })});
  table.push_back({"space in a list of hosts", kTopic, [](const Case& c) { return has_id(c, {"hostlist/'n[ 1-2]'"}); },
                   "counts the space as a digit: n01, n02", "ValueError", "Slurm writes no spaces",
                   expect_error("ValueError", "[expand_hostlist]")});
  table.push_back({"Slurm without GPUs", kTopic,
                   [](const Case& c) {
                     return has_id(c, {"slurm/no_cuda", "slurm/cuda_empty", "slurm/fewer_gpus_than_tasks"});
                   },
                   "fails, or takes an empty CUDA_VISIBLE_DEVICES for one GPU",
                   "the cluster, with no GPUs to share out", "training on CPUs needs none",
                   expect_value(without_gpus)});
  table.push_back({"order of Slurm's hosts", kTopic,
                   [](const Case& c) {
                     return has_id(c, {"slurm/sorted_hosts", "slurm/uneven_mapping"});
                   },
                   "sorts hosts as text, so that n10 comes before n9 and tasks get addresses of other machines",
                   "hosts in Slurm's order, which is that of the ranks", "a task must run where its address says",
                   expect_value(in_listed_order)});
  table.push_back({"task before cluster_spec", kTopic,
                   [](const Case& c) { return c.call == "SlurmClusterResolver" && !c.has_error(); },
                   "type and id are None until cluster_spec has been called", "known from the start",
                   "the order of two questions must not matter", expect_value(with_task_from_start)});
}

}  // namespace

void add(std::vector<Difference>& table) {
  add_specs(table);
  add_slurm(table);
  table.push_back({"protocol of a TPU", kTopic,
                   [](const Case& c) { return c.call == "TPUClusterResolver" && !c.has_error(); },
                   "AttributeError: the object has no rpc_layer", "grpc, as its master says", "every resolver has one",
                   expect_value([](const Case& c) {
                     Json answer = c.out;
                     answer["rpc_layer"] = "grpc";
                     return answer;
                   })});
}

}  // namespace lockstep::golden::rules::resolvers

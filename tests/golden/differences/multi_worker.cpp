#include <algorithm>
#include <vector>

#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::multi_worker {
namespace {

constexpr const char* kTopic = "multi_worker";

bool is_written_in_replicas(const Case& c) {
  return c.call == "variable" && c.text("then").starts_with("each replica ");
}

bool writes_only_first(const Case& c) {
  return is_written_in_replicas(c) && c.text("aggregation") == "ONLY_FIRST_REPLICA";
}

/// What worker 0 reads is what all read; copies that are kept equal are its copy, too.
Json first_replica_for_all(const Case& c) {
  Json answers = c.out;
  for (Json& worker : answers) {
    worker["read"] = c.out.at(0).at("read");
    if (c.text("synchronization") == "ON_WRITE") worker["copies"] = c.out.at(0).at("copies");
  }
  return answers;
}

Json without_graph_options(const Case& c) {
  Json answers = c.out;
  for (Json& worker : answers) {
    worker.erase("enable_op");
    worker.erase("scoped_allocator");
  }
  return answers;
}

size_t num_steps(const Json& worker) { return worker.at("steps").size(); }

/// Whether some workers made fewer steps than others.
bool ends_at_different_steps(const Case& c) {
  if (c.call != "steps" || c.text("policy") != "HINT") return false;
  return std::any_of(c.out.begin(), c.out.end(),
                     [&](const Json& one) { return num_steps(one) != num_steps(c.out[0]); });
}

Json with_steps_of_no_rows(const Case& c) {
  size_t longest = 0;
  for (const Json& worker : c.out) longest = std::max(longest, num_steps(worker));
  Json answers = c.out;
  for (Json& worker : answers) {
    while (num_steps(worker) < longest) worker["steps"].push_back(Json::array());
  }
  return answers;
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"only the first replica", kTopic, writes_only_first,
                   "each worker uses its own first replica: copies of a mirrored variable differ between workers",
                   "replica 0 of worker 0 is used for all workers",
                   "copies of a mirrored variable are equal, and a value must not depend on the worker that reads it",
                   expect_value(first_replica_for_all)});
  table.push_back({"graph options", kTopic, [](const Case& c) { return c.call == "update_config_proto"; },
                   "also enables scoped allocators for the operation CollectiveReduce",
                   "RuntimeConfig contains the group leader, the device filters and the session isolation",
                   "there is no graph to rewrite; CommunicationOptions::bytes_per_pack sets the buckets of gradients",
                   expect_value(without_graph_options)});
  table.push_back(
      {"end of a dataset with a shard hint", kTopic, ends_at_different_steps,
       "each worker ends at the end of its own part", "all workers end at the same step, with empty batches",
       "workers that continue would wait forever in the next collective", expect_value(with_steps_of_no_rows)});
}

}  // namespace lockstep::golden::rules::multi_worker

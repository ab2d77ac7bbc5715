#include <vector>

#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::contexts {
namespace {

constexpr const char* kTopic = "contexts";

bool is_mirrored(const Case& c) { return c.text("strategy") == "Mirrored"; }

bool asks_in_update_of_only_copy(const Case& c) {
  return c.text("call") == "queries" && c.text("where") == "update" && !is_mirrored(c);
}

bool distributes_by_default(const Case& c) {
  return c.text("call").starts_with("distribute_dataset") && c.text("strategy") == "Default";
}

Json with_update_of_copy_0(const Case& c) {
  Json answer = c.out;
  answer["update_replica_id"] = 0;
  return answer;
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"update of the only copy", kTopic, asks_in_update_of_only_copy,
                   "the update's replica id is the variable, or the name of its device", "0, the index of the copy",
                   "an id is a number under every strategy", expect_value(with_update_of_copy_0)});
  table.push_back({"destination of batch_reduce_to", kTopic,
                   [](const Case& c) { return c.text("call") == "batch_reduce_to" && is_mirrored(c); },
                   "ignores the destination and returns one copy per replica, unlike reduce_to",
                   "one tensor on the destination, like reduce_to", "the caller names the destination",
                   expect_value([](const Case& c) { return Json::array({c.in.at("replicas").get<double>()}); })});
  table.push_back(
      {"devices of a stored context", kTopic,
       [](const Case& c) { return c.text("call") == "devices of a kept context" && c.text("strategy") == "OneDevice"; },
       "OneDeviceStrategy answers after the end of the run, other strategies raise",
       "ContextError under every strategy",
       "a context is valid only in its own run; a program that works on one device must work on two",
       expect_error("ContextError", "[devices]")});
  table.push_back({"datasets under the default strategy", kTopic, distributes_by_default, "returns the dataset itself",
                   "a DistributedDataset of the same elements",
                   "in C++ the type of a result cannot depend on the strategy", expect_value([](const Case& c) -> Json {
                     return c.text("call") == "distribute_dataset" ? "DistributedDataset"
                                                                   : "DistributedDatasetsFromFunction";
                   })});
  table.push_back({"copy of a strategy", kTopic, [](const Case& c) { return c.text("case").starts_with("copy"); },
                   "RuntimeError: a shallow copy would be incomplete", "the same strategy",
                   "a Strategy is a handle, like a tensor",
                   expect_value([](const Case&) { return Json("the same strategy"); })});
}

}  // namespace lockstep::golden::rules::contexts

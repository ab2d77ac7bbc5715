#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tests/golden/differences/constants.h"
#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::values {
namespace {

constexpr const char* kTopic = "values";

/// Number of structures that a case regroups: those of `values`, or what the replicas return.
size_t num_parts(const Case& c) {
  return c.call == "regroup" ? c.in.at("values").at("tuple").size() : c.in.at("replicas").get<size_t>();
}

bool regroups_equal_constants(const Case& c) {
  return is_one_of(c.call, {"run_returns", "regroup"}) && num_parts(c) > 1 && !c.has_error() &&
         has_bare_constant(c.out);
}

Json one_for_each(const Case& c) {
  return with_constants_for_each_replica(c.out, num_parts(c),
                                         c.text("wrap") == "Mirrored" ? "mirrored" : "per_replica");
}

bool gives_distributed_value_to_one_device(const Case& c) {
  return is_one_of(c.call, {"run_arguments", "local_results"}) &&
         is_one_of(c.text("strategy"), {"OneDevice", "Default"});
}

/// Replaces distributed values by their only component.
Json only_components(const Json& value) {
  if (!value.is_structured()) return value;
  if (value.is_object() && value.contains("per_replica")) return value["per_replica"].at(0);
  if (value.is_object() && value.contains("mirrored")) return value["mirrored"].at(0);
  Json result = value;
  for (Json& child : result) child = only_components(child);
  return result;
}

Json printed_once(const Case& c) {
  const std::string text = c.text("value") == "VariableAggregation" ? "VariableAggregation.MEAN" : c.out.at("str");
  return {{"str", text}, {"repr", text}};
}

Json printed_spec(const Case&) {
  const std::string text =
      "PerReplica:{\n"
      "  0: TensorSpec(shape=(None,), dtype=int64),\n"
      "  1: TensorSpec(shape=(None,), dtype=int64)\n"
      "}";
  return {{"str", text}, {"repr", text}};
}

bool is_operator(const Case& c, std::initializer_list<std::string_view> names) {
  return c.call == "per_replica_operator" && is_one_of(c.text("operator"), names);
}

Json components_seen(const Case& c) {
  const Json components = c.in.at("components");
  if (c.text("operator") == "len") return components.size();
  return c.text("operator") == "index" ? components[0] : components;
}

void add_structures(std::vector<Difference>& table) {
  table.push_back({"equal numbers and texts", kTopic, regroups_equal_constants,
                   "returns them bare where all replicas have the very same Python object, as small numbers and "
                   "literals are",
                   "one for each replica",
                   "numbers and texts have no identity in C++; a shared tensor does come back bare",
                   expect_value(one_for_each)});
  table.push_back({"replicas that return different types", kTopic,
                   [](const Case& c) { return c.call == "run_returns" && c.text("returns") == "leaf and list"; },
                   "a PerReplica of a number and lists", "does not compile", "a C++ function returns one type",
                   expect_no_compile()});
  table.push_back({"distributed values and one device", kTopic, gives_distributed_value_to_one_device,
                   "hands a PerReplica or Mirrored on as it is", "its component, as under every other strategy",
                   "the step takes a tensor, whatever the strategy",
                   expect_value([](const Case& c) { return only_components(c.out); })});
  table.push_back({"negative replica", kTopic,
                   [](const Case& c) { return c.call.starts_with("select_replica") && c.in.at("replica") < 0; },
                   "counts from the last component, as Python's lists do", "IndexError",
                   "there is no replica -1; only arithmetic gone wrong asks for it",
                   expect_error("IndexError", "the replica must be one")});
}

}  // namespace

void add(std::vector<Difference>& table) {
  add_structures(table);
  table.push_back({"one printed form", kTopic,
                   [](const Case& c) {
                     return c.call == "printed" &&
                            is_one_of(c.text("value"), {"InputContext", "ValueContext", "VariableAggregation"});
                   },
                   "repr is Python's own: the object's class, or VariableAggregationV2 with its number",
                   "prints `tf.distribute.ValueContext(...)` and `VariableAggregation.MEAN` in both forms",
                   "the second form tells nothing more, and V2 is no name on the API pages",
                   expect_value(printed_once)});
  table.push_back({"printed specs", kTopic,
                   [](const Case& c) { return c.call == "printed" && c.text("value").ends_with("element_spec"); },
                   "`PerReplicaSpec(TensorSpec(shape=(None,), dtype=tf.int64, name=None), ...)`",
                   "a PerReplica of `TensorSpec(shape=(None,), dtype=int64)`",
                   "a spec for each replica is a PerReplica as any other, and its parts have no names",
                   expect_value(printed_spec)});
  table.push_back({"more reductions", kTopic,
                   [](const Case& c) { return c.call == "enum" && c.text("name") == "ReduceOp"; }, "SUM and MEAN",
                   "MIN and MAX, too", "what metrics need", expect_value([](const Case&) {
                     return Json{{"SUM", "SUM"}, {"MEAN", "MEAN"}, {"MIN", "MIN"}, {"MAX", "MAX"}};
                   })});
  table.push_back({"components in reach", kTopic,
                   [](const Case& c) {
                     return is_operator(c, {"len", "iter", "index"});
                   },
                   "TypeError: only local_results gives the components", "size(), iteration and [replica]",
                   "C++ has no tuple of unknown length to return, and the number of components is no secret",
                   expect_value(components_seen)});
  table.push_back({"truth and equality", kTopic,
                   [](const Case& c) {
                     return is_operator(c, {"bool", "equal"});
                   },
                   "true, as for every Python object", "ValueError outside of replicas, the component's answer inside",
                   "a PerReplica stands for its component, which is not known here",
                   expect_error("ValueError", "only inside a replica")});
}

}  // namespace lockstep::golden::rules::values

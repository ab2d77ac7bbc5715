#include <initializer_list>
#include <regex>
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

/// Whether Python has a second form, of classes or of enumerators: `<Class object>`, `<ReduceOp.SUM: 'SUM'>`.
bool has_pythons_form(const Case& c) {
  static const std::regex pattern(R"(<.* object>|<\w+\.\w+: .*>)");
  return c.call == "printed" && !c.has_error() && std::regex_match(c.out.at("repr").get<std::string>(), pattern);
}

Json printed_once(const Case& c) {
  std::string text = std::regex_replace(c.out.at("str").get<std::string>(), std::regex("V2\\."), ".");
  const bool is_name = is_one_of(c.text("value"), {"ReduceOp", "CommunicationImplementation"});
  if (is_name) text.erase(0, text.find('.') + 1);
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
  table.push_back(
      {"equal numbers and strings", kTopic, regroups_equal_constants,
       "returns one bare value if all replicas have the same Python object, as with small numbers and literals",
       "one value per replica", "numbers and strings have no identity in C++; a shared tensor is returned bare",
       expect_value(one_for_each)});
  table.push_back({"replicas that return different types", kTopic,
                   [](const Case& c) { return c.call == "run_returns" && c.text("returns") == "leaf and list"; },
                   "a PerReplica of a number and lists", "does not compile", "a C++ function returns one type",
                   expect_no_compile()});
  table.push_back({"distributed values and one device", kTopic, gives_distributed_value_to_one_device,
                   "passes a PerReplica or Mirrored through unchanged", "its component, as under every other strategy",
                   "the step takes a tensor under every strategy",
                   expect_value([](const Case& c) { return only_components(c.out); })});
  table.push_back({"negative replica", kTopic,
                   [](const Case& c) { return c.call.starts_with("select_replica") && c.in.at("replica") < 0; },
                   "counts from the last component, as Python's lists do", "IndexError",
                   "there is no replica -1; such an index is a programming error",
                   expect_error("IndexError", "the replica must be one")});
}

}  // namespace

void add(std::vector<Difference>& table) {
  add_structures(table);
  table.push_back(
      {"a single printed form", kTopic, has_pythons_form,
       "repr is Python's default: the class of the object, or VariableAggregationV2 with its number",
       "prints `tf.distribute.ValueContext(...)`, `VariableAggregation.MEAN` and, for types that are made from "
       "names, `SUM` in both forms",
       "a second form adds no information, and the API pages do not contain the name V2", expect_value(printed_once)});
  table.push_back({"printed specs", kTopic,
                   [](const Case& c) { return c.call == "printed" && c.text("value").ends_with("element_spec"); },
                   "`PerReplicaSpec(TensorSpec(shape=(None,), dtype=tf.int64, name=None), ...)`",
                   "a PerReplica of `TensorSpec(shape=(None,), dtype=int64)`",
                   "a spec per replica is an ordinary PerReplica, and its components have no names",
                   expect_value(printed_spec)});
  table.push_back(
      {"more reductions", kTopic, [](const Case& c) { return c.call == "enum" && c.text("name") == "ReduceOp"; },
       "SUM and MEAN", "also MIN, MAX and PRODUCT", "metrics need them", expect_value([](const Case&) {
         return Json{{"SUM", "SUM"}, {"MEAN", "MEAN"}, {"MIN", "MIN"}, {"MAX", "MAX"}, {"PRODUCT", "PRODUCT"}};
       })});
  table.push_back({"access to components", kTopic,
                   [](const Case& c) {
                     return is_operator(c, {"len", "iter", "index"});
                   },
                   "TypeError: only local_results returns the components", "size(), iteration and [replica]",
                   "C++ has no tuple of unknown length, and the number of components is useful",
                   expect_value(components_seen)});
  table.push_back({"truth and equality", kTopic,
                   [](const Case& c) {
                     return is_operator(c, {"bool", "equal"});
                   },
                   "true, as for all Python objects", "ValueError outside replicas, the answer of the component inside",
                   "a PerReplica stands for its component, which is not known outside replicas",
                   expect_error("ValueError", "only inside a replica")});
}

}  // namespace lockstep::golden::rules::values

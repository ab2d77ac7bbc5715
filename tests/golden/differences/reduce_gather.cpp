#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/golden/compare.h"
#include "tests/golden/differences/topics.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden::rules::reduce_gather {
namespace {

constexpr const char* kTopic = "reduce_gather";

bool is_plain_call(const Case& c) { return is_one_of(c.call, {"reduce_plain", "gather_plain"}); }

bool has_axis(const Case& c) { return !c.field("axis").is_null(); }

bool is_number_zero(const Case& c) {
  return c.call == "reduce_plain" && has_value_for_each_replica(c) && !has_axis(c) &&
         is_one_of(c.text("value"), {"zero", "zero_float"});
}

Json zero_tensor(const Case& c) { return to_json(at::zeros({}, c.text("value") == "zero" ? at::kInt : at::kFloat)); }

bool returns_python_numbers(const Case& c) {
  return is_plain_call(c) && !c.has_error() && (c.call == "gather_plain" || !has_axis(c)) &&
         is_one_of(c.text("value"), {"zero", "zero_float", "one", "float", "numpy", "number", "list"});
}

/// TensorFlow's numbers as the tensors that they become.
Json numbers_as_tensors(const Json& numbers) {
  if (!numbers.is_array()) return to_json(tensor_from_json(numbers.is_number_float() ? "float32" : "int32", numbers));
  Json tensors = Json::array();
  for (const Json& number : numbers) tensors.push_back(numbers_as_tensors(number));
  return tensors;
}

bool has_no_type(const Case& c) {
  return c.text("dtype") == "string" || (is_plain_call(c) && is_one_of(c.text("value"), {"none", "string"}));
}

bool sums_same_value_along_axis(const Case& c) {
  return c.call == "reduce_plain" && c.text("op") == "SUM" && has_axis(c) && has_value_for_each_replica(c) &&
         c.in.at("replicas") > 1;
}

bool reduces_list_of_numbers_along_axis(const Case& c) {
  return c.call == "reduce_plain" && c.text("value") == "list" && has_axis(c);
}

at::Tensor reduced(const std::string& op, const at::Tensor& all, const std::vector<int64_t>& axes) {
  return op == "SUM" ? all.sum(axes) : all.mean(axes);
}

at::Tensor column(int replicas, double first, double step) { return first + step * at::arange(replicas, at::kFloat); }

/// What each leaf of a structure has over all replicas, reduced.
Json reduced_leaves(const Case& c) {
  const int replicas = c.in.at("replicas");
  const auto leaf = [&](double first, double step) {
    return to_json(reduced(c.text("op"), column(replicas, first, step), {0}));
  };
  if (c.text("structure") == "tuple") return {{"tuple", Json::array({leaf(1, 1), leaf(0, 2)})}};
  if (c.text("structure") == "dict") return {{"dict", {{"a", leaf(1, 1)}, {"b", leaf(3, 0)}}}};
  return Json::array({leaf(1, 1)});
}

std::vector<at::Tensor> components(const Case& c) {
  const Json values = c.in.at("values");
  const Json shapes = c.field("shapes");
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor tensor = tensor_from_json(c.text("dtype"), values[i]);
    tensors.push_back(shapes.is_null() ? tensor : tensor.reshape(shapes[i].get<std::vector<int64_t>>()));
  }
  return tensors;
}

/// The reduction along a list of axes of replicas with equal shapes, or along the first axis of any.
Json reduced_along_list(const Case& c) {
  const auto axes = c.in.at("axis").get<std::vector<int64_t>>();
  if (axes == std::vector<int64_t>{0}) return to_json(reduced(c.text("op"), at::cat(components(c), 0), axes));
  std::vector<int64_t> shifted{0};
  for (int64_t axis : axes) shifted.push_back(axis < 0 ? axis : axis + 1);
  return to_json(reduced(c.text("op"), at::stack(components(c)), shifted));
}

bool gathers_more_than_tensorflow(const Case& c) {
  return c.call == "gather" && has_axis(c) && has_value_for_each_replica(c) && c.in.at("replicas") > 1 &&
         c.has_error() &&
         (c.in.at("axis") < 0 ||
          is_one_of(c.text("dtype"), {"uint8", "int8", "int16", "bfloat16", "bool", "complex64"}));
}

Json concatenation(const Case& c) { return to_json(at::cat(components(c), c.in.at("axis").get<int64_t>())); }

void add_reduce(std::vector<Difference>& table) {
  table.push_back({"number zero", kTopic, is_number_zero, "internal AttributeError, although zero is accepted",
                   "zero, as a tensor", "zero is the one number whose sum over replicas is known",
                   expect_value(zero_tensor)});
  table.push_back({"number in, tensor out", kTopic, returns_python_numbers,
                   "returns Python numbers unchanged if nothing has to be computed", "always a tensor with that value",
                   "in C++ the type of a result cannot depend on the number of replicas",
                   expect_value([](const Case& c) { return numbers_as_tensors(c.out); })});
  table.push_back({"None and strings", kTopic, has_no_type, "passes them through if nothing has to be computed",
                   "does not compile", "LibTorch has no string tensors, and None has no counterpart in C++",
                   expect_no_compile()});
  table.push_back({"list of numbers along an axis", kTopic, reduces_list_of_numbers_along_axis,
                   "stacks the list into one tensor for SUM", "ValueError: the leaves are numbers, which have no axis",
                   "a nest is reduced leaf by leaf, with and without an axis", expect_error("ValueError", "[reduce]")});
  table.push_back({"sum of one tensor along an axis", kTopic, sums_same_value_along_axis,
                   "sums the tensor once for each replica", "ValueError, as without an axis",
                   "one value for all replicas has no sum over them; without an axis TensorFlow rejects it too",
                   expect_error("ValueError", "cannot be summed")});
  table.push_back({"nest along an axis", kTopic,
                   [](const Case& c) { return c.call == "reduce_structure" && has_axis(c); },
                   "stacks a list or tuple into one tensor for SUM; unintended errors for MEAN and for mappings",
                   "reduces leaf by leaf and keeps the structure", "consistent with reduce without an axis",
                   expect_value(reduced_leaves)});
  table.push_back({"list of axes", kTopic, [](const Case& c) { return c.text("axis_is") == "list"; },
                   "TypeError: a list is not hashable; a tuple works", "the reduction along these axes",
                   "the type of the list does not matter", expect_value(reduced_along_list)});
}

}  // namespace

void add(std::vector<Difference>& table) {
  add_reduce(table);
  table.push_back({"gather of all types, along all axes", kTopic, gathers_more_than_tensorflow,
                   "unintended errors for negative axes and for types that its collectives do not support",
                   "the concatenation", "concatenation does not depend on the type or on the sign of the axis",
                   expect_value(concatenation)});
  table.push_back({"gather without an axis", kTopic, [](const Case& c) { return c.call == "gather" && !has_axis(c); },
                   "does not check the axis if there is one replica", "does not compile", "gather has no default axis",
                   expect_no_compile()});
}

}  // namespace lockstep::golden::rules::reduce_gather

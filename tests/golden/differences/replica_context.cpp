#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "tests/golden/differences/constants.h"
#include "tests/golden/differences/topics.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden::rules::replica_context {
namespace {

constexpr const char* kTopic = "replica_context";

int num_replicas(const Case& c) { return c.in.at("replicas"); }

bool is_mirrored(const Case& c) { return c.text("strategy") == "Mirrored"; }

bool merges(const Case& c, std::initializer_list<std::string_view> names) {
  return c.call == "merge_call" && is_one_of(c.text("merge"), names);
}

std::vector<at::Tensor> values_of(const Case& c) {
  std::vector<at::Tensor> tensors;
  for (const Json& value : c.in.at("values")) {
    tensors.push_back(tensor_from_json(c.in.value("dtype", "float32"), value));
  }
  return tensors;
}

/// Writes one tensor for each replica; with one replica it stands alone.
Json for_each_replica(const Case& c, const std::vector<at::Tensor>& tensors) {
  if (num_replicas(c) == 1) return to_json(tensors[0]);
  Json items = Json::array();
  for (const at::Tensor& tensor : tensors) items.push_back(to_json(tensor));
  return {{"per_replica", items}};
}

at::Tensor sum_of(const Case& c) {
  const std::vector<at::Tensor> values = values_of(c);
  return at::stack(values).sum(0, /*keepdim=*/false, values[0].scalar_type());
}

bool reduces_small_integers(const Case& c) {
  return c.call == "all_reduce" && num_replicas(c) > 1 && is_one_of(c.text("dtype"), {"uint8", "int8", "int16"});
}

Json reduced(const Case& c) {
  const at::Tensor sum = sum_of(c);
  const at::Tensor result = c.text("op") == "SUM" ? sum : sum.to(at::kFloat) / num_replicas(c);
  return for_each_replica(c, std::vector<at::Tensor>(num_replicas(c), result));
}

bool sums_booleans(const Case& c) {
  return c.call == "all_reduce" && num_replicas(c) > 1 && c.text("dtype") == "bool" && c.text("op") == "SUM";
}

Json any_of_replicas(const Case& c) {
  return for_each_replica(c, std::vector<at::Tensor>(num_replicas(c), at::stack(values_of(c)).any(0)));
}

bool gathers_along_negative_axis(const Case& c) {
  return is_one_of(c.call, {"all_gather", "gradient_all_gather"}) && is_mirrored(c) && num_replicas(c) > 1 &&
         c.in.at("axis") < 0;
}

/// The concatenation, or the gradient of its weighted sum: each replica's part of all weights, times their number.
Json gathered(const Case& c) {
  const std::vector<at::Tensor> values = values_of(c);
  const int64_t axis = c.in.at("axis");
  const at::Tensor all = at::cat(values, axis);
  if (c.call == "all_gather") return for_each_replica(c, std::vector<at::Tensor>(values.size(), all));
  const at::Tensor weights = at::arange(all.numel(), at::kFloat).reshape(all.sizes()) * num_replicas(c);
  std::vector<at::Tensor> gradients;
  int64_t offset = 0;
  for (const at::Tensor& value : values) {
    gradients.push_back(weights.narrow(axis, offset, value.size(axis)));
    offset += value.size(axis);
  }
  return for_each_replica(c, gradients);
}

/// Concatenates where the shapes allow it, else the rule is that of every wrong shape.
std::optional<std::string> check_gathered(const Case& c, const Outcome& outcome) {
  try {
    gathered(c);
  } catch (const c10::Error&) {
    return is_one_of(outcome.type, {"ValueError", "CollectiveError"}) ? std::nullopt
                                                                      : std::optional<std::string>("an error is due");
  }
  return expect_value(gathered)(c, outcome);
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back(
      {"equal numbers and strings", kTopic,
       [](const Case& c) {
         return c.call == "merge_call" && num_replicas(c) > 1 && !c.has_error() && has_bare_constant(c.out);
       },
       "returns one bare value if all replicas have the same Python object", "one value per replica",
       "numbers and strings have no identity in C++; a shared tensor is returned bare",
       expect_value([](const Case& c) { return with_constants_for_each_replica(c.out, num_replicas(c)); })});
  table.push_back({"all_reduce on one device", kTopic,
                   [](const Case& c) { return c.call == "all_reduce" && num_replicas(c) == 1 && c.has_error(); },
                   "ValueError in a traced function, because the argument has no device", "the value",
                   "the sum over one replica is its value, for every way to call the function",
                   expect_value([](const Case& c) { return to_json(values_of(c).at(0)); })});
  table.push_back({"all_reduce of small integers", kTopic, reduces_small_integers,
                   "InvalidArgument: its collectives do not support 8- and 16-bit integers",
                   "the sum in the same type, the mean in float32", "reduce outside replicas supports them too",
                   expect_value(reduced)});
  table.push_back({"all_reduce of booleans", kTopic, sums_booleans,
                   "InvalidArgument: its collectives do not support bool",
                   "the logical or; the product is the logical and", "so LibTorch adds and multiplies booleans",
                   expect_value(any_of_replicas)});
  table.push_back({"negative axes", kTopic, gathers_along_negative_axis,
                   "an unintended ValueError from its collectives", "counts from the last dimension",
                   "consistent with one device, with gather, and with LibTorch", check_gathered});
  table.push_back({"merge_call in a function", kTopic, [](const Case& c) { return merges(c, {"nested_in_function"}); },
                   "RuntimeError while a nested function is traced", "the result of the merge",
                   "nothing is traced; a function that the step calls is part of the step",
                   expect_value([](const Case& c) { return to_json(sum_of(c)); })});
  table.push_back({"number in, tensor out", kTopic, [](const Case& c) { return merges(c, {"reduce_literal"}); },
                   "the default and one-device strategies return a number unchanged", "a tensor with that value",
                   "in C++ the type of a result cannot depend on the strategy",
                   expect_value([](const Case&) { return to_json(at::scalar_tensor(2.0, at::kFloat)); })});
}

}  // namespace lockstep::golden::rules::replica_context

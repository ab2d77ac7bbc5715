#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/strategy/strategy.h"
#include "lockstep/value/indexed_slices.h"
#include "tests/golden/drivers.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden::drivers::reduce_gather {
namespace {

Json json_of(const at::Tensor& value) { return to_json(value); }

template <class T>
Json json_of(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(json_of(value));
  return array;
}

template <class... T>
Json json_of(const std::tuple<T...>& values) {
  Json array = Json::array();
  std::apply([&](const T&... value) { (array.push_back(json_of(value)), ...); }, values);
  return {{"tuple", array}};
}

template <class T>
Json json_of(const std::map<std::string, T>& values) {
  Json items = Json::object();
  for (const auto& [key, value] : values) items[key] = json_of(value);
  return {{"dict", items}};
}

ReduceOp op_of(const Case& test_case) {
  const Json op = test_case.field("op");
  if (!op.is_string()) throw DoesNotCompile("a ReduceOp is made of an enumerator or a text");
  return ReduceOp(op.get<std::string>());
}

ReduceAxis axis_of(const Case& test_case) {
  const Json axis = test_case.field("axis");
  if (axis.is_null()) return {};
  if (axis.is_number_integer()) return axis.get<int64_t>();
  if (axis.is_array()) return axis.get<std::vector<int64_t>>();
  throw DoesNotCompile("an axis is a whole number or a list of them");
}

int64_t gather_axis_of(const Case& test_case) {
  const Json axis = test_case.field("axis");
  if (!axis.is_number_integer()) throw DoesNotCompile("the axis of gather is a whole number");
  return axis.get<int64_t>();
}

/// The values of the replicas; their shapes are named where empty lists hide them.
std::vector<at::Tensor> values_of(const Case& test_case) {
  const Json values = test_case.in.at("values");
  const Json shapes = test_case.field("shapes");
  const std::string dtype = test_case.in.value("dtype", "float32");
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    at::Tensor tensor = tensor_from_json(dtype, values[i]);
    tensors.push_back(shapes.is_null() ? tensor : tensor.reshape(shapes[i].get<std::vector<int64_t>>()));
  }
  return tensors;
}

/// Calls `f` with the values as what the strategy has for them: a tensor, or one for each replica.
template <class F>
Json with_values(const Case& test_case, F&& f) {
  const std::vector<at::Tensor> values = values_of(test_case);
  if (has_value_for_each_replica(test_case)) return json_of(f(PerReplica<at::Tensor>(values)));
  return json_of(f(values.at(0)));
}

/// Calls `f` with a value that is the same everywhere.
template <class F>
Json with_plain_value(const std::string& kind, F&& f) {
  if (kind == "zero") return json_of(f(0));
  if (kind == "zero_float") return json_of(f(0.0f));
  if (kind == "one") return json_of(f(1));
  if (kind == "float") return json_of(f(2.5f));
  if (kind == "number") return json_of(f(3.0f));
  if (kind == "list") return json_of(f(std::vector<float>{1, 2}));
  if (kind == "tensor_vector" || kind == "numpy_vector") return json_of(f(at::tensor({1.0f, 3.0f})));
  if (kind == "none") throw DoesNotCompile("nothing is no value to combine");
  if (kind == "string") throw DoesNotCompile("a text is no value to combine");
  throw HarnessError("[reduce_gather] unknown: value=" + kind);
}

Json reduce_plain(const Strategy& strategy, const Case& test_case) {
  const auto reduce = [&](const auto& value) { return strategy.reduce(op_of(test_case), value, axis_of(test_case)); };
  const std::string kind = test_case.text("value");
  if (kind == "tensor" || kind == "numpy") return json_of(reduce(at::scalar_tensor(2.5f)));
  return with_plain_value(kind, reduce);
}

Json gather_plain(const Strategy& strategy, const Case& test_case) {
  const auto gather = [&](const auto& value) { return strategy.gather(value, gather_axis_of(test_case)); };
  const std::string kind = test_case.text("value");
  if (kind == "tensor") return json_of(gather(at::tensor({1.0f, 2.0f})));
  if (kind == "scalar") return json_of(gather(at::scalar_tensor(1.0f)));
  if (kind == "slices") return json_of(gather(IndexedSlices{at::tensor({0}), at::ones({1, 2}), {3, 2}}));
  return with_plain_value(kind, gather);
}

at::Tensor one_element(double value) { return at::tensor({static_cast<float>(value)}); }

Json reduce_structure(const Strategy& strategy, const Case& test_case) {
  const auto reduce = [&](auto value_fn) {
    const auto values = strategy.distribute_values_from_function(value_fn);
    return json_of(strategy.reduce(op_of(test_case), values, axis_of(test_case)));
  };
  const std::string kind = test_case.text("structure");
  if (kind == "tuple") {
    return reduce([](const ValueContext& context) {
      const int id = context.replica_id_in_sync_group;
      return std::tuple(one_element(id + 1), one_element(2 * id));
    });
  }
  if (kind == "dict") {
    return reduce([](const ValueContext& context) {
      const int id = context.replica_id_in_sync_group;
      return std::map<std::string, at::Tensor>{{"a", one_element(id + 1)}, {"b", one_element(3)}};
    });
  }
  if (kind != "list") throw HarnessError("[reduce_structure] unknown: structure=" + kind);
  return reduce([](const ValueContext& context) {
    return std::vector<at::Tensor>{one_element(context.replica_id_in_sync_group + 1)};
  });
}

}  // namespace

Outcome run(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  const Strategy strategy = strategy_of(test_case);
  if (test_case.call == "reduce" || test_case.call == "reduce_op") {
    return Outcome::of_value(with_values(
        test_case, [&](const auto& value) { return strategy.reduce(op_of(test_case), value, axis_of(test_case)); }));
  }
  if (test_case.call == "gather") {
    return Outcome::of_value(
        with_values(test_case, [&](const auto& value) { return strategy.gather(value, gather_axis_of(test_case)); }));
  }
  if (test_case.call == "reduce_plain") return Outcome::of_value(reduce_plain(strategy, test_case));
  if (test_case.call == "gather_plain") return Outcome::of_value(gather_plain(strategy, test_case));
  if (test_case.call == "reduce_structure") return Outcome::of_value(reduce_structure(strategy, test_case));
  throw HarnessError("[reduce_gather] unknown call: " + test_case.call);
}

}  // namespace lockstep::golden::drivers::reduce_gather

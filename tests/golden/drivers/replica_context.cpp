#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/golden/drivers.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"
#include "tests/golden/value.h"
#include "tests/golden/value_nest.h"

namespace lockstep::golden::drivers::replica_context {
namespace {

using Tensors = PerReplica<at::Tensor>;

/// One tensor for each replica, as a case lists them.
Tensors values_of(const Case& test_case) {
  std::vector<at::Tensor> tensors;
  for (const Json& value : test_case.in.at("values")) {
    tensors.push_back(tensor_from_json(test_case.in.value("dtype", "float32"), value));
  }
  return Tensors(tensors);
}

Json all_reduce(const Strategy& strategy, const Case& test_case) {
  const ReduceOp op(test_case.text("op"));
  return to_json(
      strategy.run([&](const at::Tensor& x) { return get_replica_context().all_reduce(op, x); }, values_of(test_case)));
}

Json all_gather(const Strategy& strategy, const Case& test_case) {
  const int64_t axis = test_case.in.at("axis");
  return to_json(strategy.run([&](const at::Tensor& x) { return get_replica_context().all_gather(x, axis); },
                              values_of(test_case)));
}

/// The structure `{a: x, b: [2x, (x+1,)]}` in C++.
using B = std::tuple<at::Tensor, std::tuple<at::Tensor>>;
using Nest = std::tuple<at::Tensor, B>;

Json nest(const Strategy& strategy, const Case& test_case) {
  if (test_case.text("structure") != "{a: x, b: [2x, (x+1,)]}") {
    throw HarnessError("[replica_context] unknown: structure=" + test_case.text("structure"));
  }
  const bool gathers = test_case.call == "all_gather_nest";
  const auto combine = [&](const at::Tensor& x) {
    const Nest structure{x, B{x * 2, std::tuple(x + 1)}};
    const ReplicaContext context = get_replica_context();
    return gathers ? context.all_gather(structure, test_case.in.value("axis", 0))
                   : context.all_reduce(test_case.in.value("op", "SUM").c_str(), structure);
  };
  const auto [a, b] = strategy.run(combine, values_of(test_case));
  const auto& [twice, inner] = b;
  const Json inner_json = {{"tuple", Json::array({to_json(std::get<0>(inner))})}};
  return {{"dict", {{"a", to_json(a)}, {"b", Json::array({to_json(twice), inner_json})}}}};
}

/// Returns the factor of `all_reduce(x) * (factor)` in replica `id`.
double factor_of(const std::string& y, int id) {
  if (y == "all_reduce(x) * (1)") return 1.0;
  if (y == "all_reduce(x) * (id)") return id;
  if (y == "all_reduce(x) * (1+2id)") return 1.0 + 2.0 * id;
  throw HarnessError("[replica_context] unknown: y=" + y);
}

/// Runs `make_y` on a leaf in every replica and returns the gradient of y's sum.
template <class F>
Json gradient(const Strategy& strategy, const Case& test_case, F&& make_y) {
  const auto step = [&](const at::Tensor& value) {
    const at::Tensor x = value.detach().clone().requires_grad_();
    const at::Tensor y = make_y(x);
    return torch::autograd::grad({y.sum()}, {x})[0];
  };
  return to_json(strategy.run(step, values_of(test_case)));
}

Json gradient_all_reduce(const Strategy& strategy, const Case& test_case) {
  const ReduceOp op(test_case.text("op"));
  return gradient(strategy, test_case, [&](const at::Tensor& x) {
    const ReplicaContext context = get_replica_context();
    return context.all_reduce(op, x) * factor_of(test_case.text("y"), context.replica_id_in_sync_group());
  });
}

Json gradient_all_gather(const Strategy& strategy, const Case& test_case) {
  const int64_t axis = test_case.in.at("axis");
  return gradient(strategy, test_case, [&](const at::Tensor& x) {
    const at::Tensor y = get_replica_context().all_gather(x, axis);
    return y * at::arange(y.numel(), at::kFloat).reshape(y.sizes());
  });
}

at::Tensor sum(const Strategy& strategy, const Tensors& x) { return strategy.reduce("sum", x); }

at::Tensor merge_sum(const at::Tensor& x) { return get_replica_context().merge_call(sum, x); }

/// What a merge function sees: the kind of its argument, and three queries.
Value seen_in_merge(const Strategy& strategy, const Tensors& x) {
  return {ListValue{{Value{std::string(x.is_bare() ? "EagerTensor" : "PerReplica")}, Value{in_cross_replica_context()},
                     Value{!get_replica_context()}, Value{get_strategy() == strategy}}}};
}

Value merge_seen(const at::Tensor& x) { return get_replica_context().merge_call(seen_in_merge, x); }

at::Tensor merge_sum_kwargs(const at::Tensor& x) {
  const auto add = [](const Strategy& strategy, const Tensors& value, const PerReplica<double>& plus) {
    return strategy.reduce("sum", value) + strategy.local_results(plus)[0];
  };
  return get_replica_context().merge_call(add, x, 10.0);
}

std::string merge_of_own_function(const at::Tensor& x) {
  const std::string own = replica_id() == 0 ? "first" : "other";
  return get_replica_context().merge_call([&](const Strategy&, const Tensors&) { return own; }, x);
}

int64_t merge_of_uneven_lists(const at::Tensor& x) {
  const std::vector<at::Tensor> own(replica_id() + 1, x);
  return get_replica_context().merge_call([](const Strategy&, const std::vector<Tensors>&) { return int64_t{1}; }, own);
}

/// Makes the call in `nested`, as a function that the replica's function calls.
at::Tensor merge_in_nested_function(const at::Tensor& x) {
  const auto nested = [](const at::Tensor& value) { return merge_sum(value); };
  return nested(x);
}

using Step = std::function<Value(const at::Tensor&)>;

const std::map<std::string_view, Step>& merges() {
  static const auto merge = [](const auto& fn, const at::Tensor& x) {
    return Value{get_replica_context().merge_call(fn, x)};
  };
  static const std::map<std::string_view, Step> table{
      {"sum", [](const at::Tensor& x) { return Value{merge_sum(x)}; }},
      {"sum_kwargs", [](const at::Tensor& x) { return Value{merge_sum_kwargs(x)}; }},
      {"identity", [](const at::Tensor& x) { return merge([](const Strategy&, const Tensors& v) { return v; }, x); }},
      {"none",
       [](const at::Tensor& x) {
         get_replica_context().merge_call([](const Strategy&, const Tensors&) {}, x);
         return Value();
       }},
      {"context", merge_seen},
      {"literal",
       [](const at::Tensor& x) {
         return merge([](const Strategy&, const Tensors&) { return std::string("abc"); }, x);
       }},
      {"reduce_literal",
       [](const at::Tensor& x) {
         return merge([](const Strategy& s, const Tensors&) { return s.reduce("sum", 2.0f); }, x);
       }},
      {"twice", [](const at::Tensor& x) { return Value{merge_sum(merge_sum(x))}; }},
      {"only_first", [](const at::Tensor& x) { return Value{replica_id() == 0 ? merge_sum(x) : x}; }},
      {"only_second", [](const at::Tensor& x) { return Value{replica_id() == 1 ? merge_sum(x) : x}; }},
      {"wrong_arity",
       [](const at::Tensor&) -> Value { throw DoesNotCompile("the merge function takes the arguments"); }},
      {"raises",
       [](const at::Tensor& x) {
         const auto raise = [](const Strategy&, const Tensors&) -> int64_t {
           throw std::domain_error("division by zero");
         };
         return merge(raise, x);
       }},
      {"different_functions", [](const at::Tensor& x) { return Value{merge_of_own_function(x)}; }},
      {"structures_differ", [](const at::Tensor& x) { return Value{merge_of_uneven_lists(x)}; }},
      {"nested_in_function", [](const at::Tensor& x) { return Value{merge_in_nested_function(x)}; }},
      {"after_gather",
       [](const at::Tensor& x) {
         return merge([](const Strategy& s, const Tensors& v) { return s.gather(v, 0); }, x.reshape({1}));
       }},
      {"local_results",
       [](const at::Tensor& x) {
         const auto count = [](const Strategy& s, const Tensors& v) {
           return static_cast<int64_t>(s.local_results(v).size());
         };
         return merge(count, x);
       }},
  };
  return table;
}

Json merge_call(const Strategy& strategy, const Case& test_case) {
  const auto found = merges().find(test_case.text("merge"));
  if (found == merges().end()) throw HarnessError("[replica_context] unknown: merge=" + test_case.text("merge"));
  return to_json(strategy.run(found->second, values_of(test_case)));
}

}  // namespace

Outcome run(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  const Strategy strategy = strategy_of(test_case);
  const std::string& call = test_case.call;
  if (call == "all_reduce") return Outcome::of_value(all_reduce(strategy, test_case));
  if (call == "all_gather") return Outcome::of_value(all_gather(strategy, test_case));
  if (call == "all_reduce_nest" || call == "all_gather_nest") return Outcome::of_value(nest(strategy, test_case));
  if (call == "gradient_all_reduce") return Outcome::of_value(gradient_all_reduce(strategy, test_case));
  if (call == "gradient_all_gather") return Outcome::of_value(gradient_all_gather(strategy, test_case));
  if (call == "merge_call") return Outcome::of_value(merge_call(strategy, test_case));
  throw HarnessError("[replica_context] unknown call: " + call);
}

}  // namespace lockstep::golden::drivers::replica_context

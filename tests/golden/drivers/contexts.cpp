#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/strategy_impl.h"
#include "tests/golden/drivers.h"
#include "tests/golden/drivers/nesting.h"
#include "tests/golden/strategies.h"
#include "tests/golden/variables.h"

namespace lockstep::golden::drivers::contexts {
namespace {

/// What the calls of a case work with, all of it made before the place of the case is entered.
struct Stage {
  explicit Stage(const Case& test_case)
      : strategy(strategy_of(test_case)),
        other(OneDeviceStrategy("CPU:0")),
        variable(make_variable(strategy)),
        iterator(strategy.distribute_dataset(global_batches()).iterator()) {
    devices = strategy.extended().non_slot_devices({variable});
    strategy.run([&] {
      if (get_replica_context().replica_id_in_sync_group() == 0) kept = get_replica_context();
    });
  }

  /// Its aggregation lets replicas write it under strategies that keep it once.
  static Variable make_variable(const Strategy& strategy) {
    auto scope = strategy.scope();
    return Variable(1.0, {.aggregation = VariableAggregation::Mean});
  }

  /// Two elements in each batch.
  static data::Dataset<at::Tensor> global_batches() { return data::range(8).batch(2); }

  /// Returns a one for each replica, as a scalar or with one element.
  PerReplica<at::Tensor> ones(at::IntArrayRef shape) const {
    return strategy.distribute_values_from_function([&](const ValueContext&) { return at::ones(shape); });
  }

  Strategy strategy;
  Strategy other;
  Variable variable;
  mutable DistributedIterator<at::Tensor> iterator;
  std::vector<std::string> devices;
  /// Replica 0's context of a run that has ended.
  ReplicaContext kept;
};

template <class Components>
Json array_of(const Components& components) {
  Json array = Json::array();
  for (const at::Tensor& component : components) array.push_back(plain_json(component));
  return array;
}

Json show(const PerReplica<at::Tensor>& value) {
  return value.is_bare() ? plain_json(value[0]) : Json{{"PerReplica", array_of(value)}};
}

/// A replica sees its own component of a Mirrored value, and with one copy there is nothing to mirror.
Json show(const Mirrored<at::Tensor>& value) {
  if (value.size() == 1 || current_position().kind == PositionKind::Replica) return plain_json(value.value());
  return {{"Mirrored", array_of(value)}};
}

/// The only copy of a variable is what TensorFlow calls a variable.
Json show_update(const Stage& stage, const Mirrored<at::Tensor>& value) {
  const bool is_variable = stage.variable.components().size() == 1 && value[0].is_same(stage.variable.components()[0]);
  return is_variable ? Json{{"Variable", plain_json(value[0])}} : show(value);
}

Json queries() {
  const ReplicaContext context = get_replica_context();
  const std::optional<int> update = get_update_replica_id();
  Json described;
  if (context) {
    described = {{"id", context.replica_id_in_sync_group()}, {"num_replicas_in_sync", context.num_replicas_in_sync()}};
  }
  return {{"replica_context", described},
          {"cross_replica", in_cross_replica_context()},
          {"has_strategy", has_strategy()},
          {"update_replica_id", update ? Json(*update) : Json()}};
}

Json enter(const Strategy& strategy) {
  auto scope = strategy.scope();
  return "entered";
}

Json set_and_reset(const Strategy& strategy) {
  set_strategy(strategy);
  set_strategy(std::nullopt);
  return "set";
}

Json batch_reduce_to(const Stage& stage) {
  Json results = Json::array();
  const std::vector<std::pair<PerReplica<at::Tensor>, Destinations>> values{{stage.ones({}), "CPU:0"}};
  for (const auto& value : stage.strategy.extended().batch_reduce_to("sum", values)) results.push_back(show(value));
  return results;
}

Json distribute_dataset(const Stage& stage) {
  const DistributedDataset<at::Tensor> dataset = stage.strategy.distribute_dataset(Stage::global_batches());
  return dataset.cardinality() == data::Cardinality::exactly(4) ? "DistributedDataset" : "another dataset";
}

Json distribute_from_function(const Stage& stage) {
  int num_calls = 0;
  const DistributedDataset<at::Tensor> dataset =
      stage.strategy.distribute_datasets_from_function([&](const InputContext&) {
        ++num_calls;
        return Stage::global_batches();
      });
  return num_calls == 1 ? "DistributedDatasetsFromFunction" : "another dataset";
}

using Call = Json (*)(const Stage&);

at::Tensor one() { return at::ones({}); }

const std::map<std::string_view, Call>& calls() {
  static const std::map<std::string_view, Call> table{
      {"queries", [](const Stage&) { return queries(); }},
      {"get_strategy is s", [](const Stage& s) -> Json { return get_strategy() == s.strategy; }},
      {"num_replicas_in_sync", [](const Stage& s) -> Json { return s.strategy.num_replicas_in_sync(); }},
      {"scope", [](const Stage& s) { return enter(s.strategy); }},
      {"scope of another strategy", [](const Stage& s) { return enter(s.other); }},
      {"scope of the default strategy",
       [](const Stage&) { return enter(Strategy(detail::default_strategy().shared_from_this())); }},
      {"experimental_set_strategy", [](const Stage& s) { return set_and_reset(s.strategy); }},
      {"run", [](const Stage& s) { return show(s.strategy.run(one)); }},
      {"run of another strategy", [](const Stage& s) { return show(s.other.run(one)); }},
      {"call_for_each_replica", [](const Stage& s) { return show(s.strategy.extended().call_for_each_replica(one)); }},
      {"reduce", [](const Stage& s) { return plain_json(s.strategy.reduce("sum", s.ones({}))); }},
      {"reduce with axis", [](const Stage& s) { return plain_json(s.strategy.reduce("sum", s.ones({1}), 0)); }},
      {"gather", [](const Stage& s) { return plain_json(s.strategy.gather(at::ones({1}), 0)); }},
      {"reduce_to", [](const Stage& s) { return show(s.strategy.extended().reduce_to("sum", s.ones({}), "CPU:0")); }},
      {"batch_reduce_to", batch_reduce_to},
      {"broadcast_to",
       [](const Stage& s) { return show(s.strategy.extended().broadcast_to(one(), Destinations("CPU:0"))); }},
      {"update",
       [](const Stage& s) {
         const at::NoGradGuard no_grad;
         const auto add = [](at::Tensor copy, double x) { return copy.add_(x); };
         return show_update(s, s.strategy.extended().update(s.variable, add, 1.0));
       }},
      {"update_non_slot", [](const Stage& s) { return show(s.strategy.extended().update_non_slot(s.devices, one)); }},
      {"colocate_vars_with",
       [](const Stage& s) -> Json {
         const auto colocation = s.strategy.extended().colocate_vars_with(s.variable);
         return "entered";
       }},
      {"create variable", [](const Stage&) -> Json { return class_name(Variable(1.0)); }},
      {"assign", [](const Stage& s) { return (s.variable.assign(1.0), Json()); }},
      {"read variable", [](const Stage& s) { return plain_json(s.variable.value()); }},
      {"distribute_values_from_function", [](const Stage& s) { return show(s.ones({})); }},
      {"distribute_dataset", distribute_dataset},
      {"distribute_datasets_from_function", distribute_from_function},
      {"next(iterator)", [](const Stage& s) { return show(s.iterator.get_next()); }},
      {"local_results", [](const Stage& s) { return array_of(s.strategy.local_results(one())); }},
      {"update_config_proto",
       [](const Stage& s) -> Json { return s.strategy.update_config_proto({}).isolate_session_state; }},
      {"merge_call on the current context",
       [](const Stage&) -> Json { return get_replica_context().merge_call([](const Strategy&) { return 7; }); }},
      {"merge_call on a kept context",
       [](const Stage& s) -> Json { return s.kept.merge_call([](const Strategy&) { return 7; }); }},
      {"all_reduce on the current context",
       [](const Stage&) { return plain_json(get_replica_context().all_reduce("sum", one())); }},
      {"all_reduce on a kept context", [](const Stage& s) { return plain_json(s.kept.all_reduce("sum", one())); }},
      {"devices of a kept context", [](const Stage& s) -> Json { return s.kept.devices().size(); }},
  };
  return table;
}

/// Makes the call in every replica and returns the first one's answer.
Json in_replicas(const Strategy& strategy, const Stage& stage, Call call) {
  std::vector<Json> answers(strategy.num_replicas_in_sync());
  strategy.run([&] {
    const int replica = get_replica_context().replica_id_in_sync_group();
    answers[replica] = call(stage);
  });
  return answers[0];
}

Json in_merge(const Stage& stage, Call call) {
  Json answer;
  stage.strategy.run([&] { get_replica_context().merge_call([&](const Strategy&) { answer = call(stage); }); });
  return answer;
}

/// Makes the call in the update of every copy and returns the first one's answer.
Json in_update(const Stage& stage, Call call) {
  std::optional<Json> answer;
  auto scope = stage.strategy.scope();
  stage.strategy.extended().update(stage.variable, [&](const at::Tensor&) {
    Json own = call(stage);
    if (!answer) answer = std::move(own);
  });
  return *answer;
}

Json run_legal(const Case& test_case) {
  const LogicalCpus cpus(test_case);
  const Stage stage(test_case);
  const auto found = calls().find(test_case.text("call"));
  if (found == calls().end()) throw HarnessError("[contexts] unknown: call=" + test_case.text("call"));
  const Call call = found->second;
  const std::string where = test_case.text("where");
  if (where == "nothing entered") return call(stage);
  if (where == "replica") return in_replicas(stage.strategy, stage, call);
  if (where == "merge") return in_merge(stage, call);
  if (where == "update") return in_update(stage, call);
  if (where == "replica of another strategy") return in_replicas(stage.other, stage, call);
  const bool is_other = where == "scope of another strategy";
  if (!is_other && where != "scope" && where != "scope of the default strategy") {
    throw HarnessError("[contexts] unknown: where=" + where);
  }
  auto scope = (is_other ? stage.other : where == "scope" ? stage.strategy : get_strategy()).scope();
  return call(stage);
}

}  // namespace

Outcome run(const Case& test_case) {
  if (test_case.call == "legal") return Outcome::of_value(run_legal(test_case));
  if (test_case.call == "nesting") return Outcome::of_value(run_nesting(test_case));
  throw HarnessError("[contexts] unknown call: " + test_case.call);
}

}  // namespace lockstep::golden::drivers::contexts

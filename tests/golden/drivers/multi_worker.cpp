#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/distributed_input.h"
#include "tests/golden/drivers.h"
#include "tests/golden/pipelines.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"
#include "tests/golden/variables.h"
#include "tests/golden/worker_processes.h"

namespace lockstep::golden::drivers::multi_worker {
namespace {

/// This process among the workers of a case.
struct Worker {
  MultiWorkerMirroredStrategy strategy{nullptr, {}, {"CPU:0"}};
  int index = strategy.cluster_resolver()->task_id().value();
};

/// The steps that TensorFlow was asked for: more of a batched range than of other pipelines.
size_t max_steps(const Json& pipeline) {
  const bool is_batched_range = pipeline.size() == 2 && pipeline[0][0] == "range" && pipeline[1][0] == "batch";
  return is_batched_range ? 12 : 6;
}

/// Returns the tensor that a text of the data stands for on a worker.
at::Tensor tensor_of(std::string_view text, int worker) {
  const auto number = static_cast<float>(worker);
  if (text == "1.0") return at::scalar_tensor(1.0f);
  if (text == "2.0") return at::scalar_tensor(2.0f);
  if (text == "worker index + 1") return at::scalar_tensor(number + 1);
  if (text == "worker index + 1, int32") return at::scalar_tensor(worker + 1, at::kInt);
  if (text == "worker index repeated index + 1 times") return at::full({worker + 1}, number);
  if (text == "[worker index, 1]") return at::tensor({number, 1.0f});
  if (text == "[[worker index, 7]]") return at::tensor({number, 7.0f}).unsqueeze(0);
  if (text == "(worker index + 1) rows of [worker index]") return at::full({worker + 1, 1}, number);
  throw HarnessError("[multi_worker] unknown: value=" + std::string(text));
}

constexpr std::string_view kFromRun = "run: ";
constexpr std::string_view kOnHost = "host ";

/// Returns `text` without `prefix`, and whether it was there.
std::pair<std::string_view, bool> without(std::string_view prefix, std::string_view text) {
  return text.starts_with(prefix) ? std::pair(text.substr(prefix.size()), true) : std::pair(text, false);
}

/// Calls `f` with a tensor that the program itself has, or with what `run` returned.
template <class F>
Json with_value(const Worker& worker, std::string_view text, bool from_run, F&& f) {
  const at::Tensor value = tensor_of(text, worker.index);
  if (!from_run) return to_json(f(value));
  return to_json(f(worker.strategy.run([&] { return value; })));
}

Json facts(const Worker& worker, const Case&) {
  const StrategyExtended extended = worker.strategy.extended();
  const auto resolver = worker.strategy.cluster_resolver();
  return {{"num_replicas_in_sync", worker.strategy.num_replicas_in_sync()},
          {"worker_devices", extended.worker_devices()},
          {"should_checkpoint", extended.should_checkpoint()},
          {"should_save_summary", extended.should_save_summary()},
          {"in_multi_worker_mode", worker_place(*resolver).has_value()},
          {"task_type", resolver->task_type().value()},
          {"task_id", resolver->task_id().value()}};
}

/// Returns a number of a pipeline that may depend on the worker.
Json argument_on_worker(const Json& argument, const InputContext& context) {
  const int64_t id = context.input_pipeline_id;
  if (argument == "workers") return context.num_input_pipelines;
  if (argument == "id") return id;
  if (argument == "8 + id") return 8 + id;
  if (argument == "8 + 2 id") return 8 + 2 * id;
  return argument;
}

Case pipeline_on_worker(const Case& test_case, const InputContext& context) {
  Case own = test_case;
  for (Json& step : own.in.at("pipeline")) {
    for (size_t i = 1; i < step.size(); ++i) step[i] = argument_on_worker(step[i], context);
  }
  return own;
}

/// The ids of each step of this worker's only replica.
Json own_steps(const std::shared_ptr<const detail::DistributedInput>& input, const Case& test_case) {
  Json own = Json::array();
  for (const Json& step : ids_of_steps(input, max_steps(test_case.in.at("pipeline")))) own.push_back(step.at(0));
  return own;
}

Json steps(const Worker& worker, const Case& test_case) {
  const auto input = detail::distribute_node(worker.strategy.impl(), pipeline_of(test_case), {});
  const PerReplica<data::ElementSpec> spec = detail::distributed_spec(*input);
  return {{"steps", own_steps(input, test_case)}, {"element_spec", to_json(spec[0].leaves->at(0).shape)}};
}

Json from_function(const Worker& worker, const Case& test_case) {
  const auto make = [&](const InputContext& context) { return pipeline_of(pipeline_on_worker(test_case, context)); };
  return own_steps(detail::distribute_from_function(worker.strategy.impl(), make, {}), test_case);
}

Json input_context(const Worker& worker, const Case&) {
  Json contexts = Json::array();
  worker.strategy.distribute_datasets_from_function([&](const InputContext& context) {
    contexts.push_back({context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync});
    return data::range(4).batch(2);
  });
  return contexts;
}

Json reduce(const Worker& worker, const Case& test_case) {
  const Json axis = test_case.field("axis");
  const std::string value = test_case.text("value");
  const auto [text, from_run] = without(kFromRun, value);
  return with_value(worker, text, from_run, [&](const auto& one) {
    return worker.strategy.reduce(ReduceOp(test_case.text("op")), one,
                                  axis.is_null() ? ReduceAxis{} : ReduceAxis{axis.get<int64_t>()});
  });
}

Json gather(const Worker& worker, const Case& test_case) {
  const std::string value = test_case.text("value");
  const auto [text, on_host] = without(kOnHost, value);
  return with_value(worker, text, !on_host,
                    [&](const auto& one) { return worker.strategy.gather(one, test_case.in.at("axis")); });
}

Json reduce_to(const Worker& worker, const Case& test_case) {
  const std::string value = test_case.text("value");
  const at::Tensor one = tensor_of(without(kOnHost, value).first, worker.index);
  return to_json(worker.strategy.extended().reduce_to(ReduceOp(test_case.text("op")), one, one));
}

Json batch_reduce_to(const Worker& worker, const Case& test_case) {
  if (test_case.text("values") != "host 1.0, host 2.0") throw HarnessError("[batch_reduce_to] unknown values");
  std::vector<std::pair<PerReplica<at::Tensor>, Destinations>> values;
  for (const char* text : {"1.0", "2.0"}) {
    const at::Tensor one = tensor_of(text, worker.index);
    values.emplace_back(PerReplica<at::Tensor>{one}, one);
  }
  Json reduced = Json::array();
  for (const auto& one : worker.strategy.extended().batch_reduce_to(ReduceOp(test_case.text("op")), values)) {
    reduced.push_back(to_json(one));
  }
  return reduced;
}

Json all_reduce(const Worker& worker, const Case& test_case) {
  const ReduceOp op(test_case.text("op"));
  return to_json(worker.strategy.run(
      [&] { return get_replica_context().all_reduce(op, tensor_of(test_case.text("value"), worker.index)); }));
}

Json all_gather(const Worker& worker, const Case& test_case) {
  const int64_t axis = test_case.in.at("axis");
  return to_json(worker.strategy.run(
      [&] { return get_replica_context().all_gather(tensor_of(test_case.text("value"), worker.index), axis); }));
}

IndexedSlices slices_of(const Case& test_case, int worker) {
  const std::vector<int64_t> dense_shape = test_case.in.at("dense_shape");
  if (test_case.text("indices") == "0..worker index") {
    return {at::arange(worker + 1, at::kInt), at::ones({worker + 1, 1}), dense_shape};
  }
  if (test_case.text("indices") != "[worker index]") throw HarnessError("[multi_worker] unknown indices");
  return {at::full({1}, worker, at::kInt), at::full({1, 1}, worker + 1.0f), dense_shape};
}

Json all_reduce_slices(const Worker& worker, const Case& test_case) {
  const ReduceOp op(test_case.text("op"));
  return to_json(
      worker.strategy.run([&] { return get_replica_context().all_reduce(op, slices_of(test_case, worker.index)); }));
}

Json gradient_all_reduce(const Worker& worker, const Case& test_case) {
  const ReduceOp op(test_case.text("op"));
  return to_json(worker.strategy.run([&] {
    const at::Tensor x = at::scalar_tensor(1.0f).requires_grad_();
    const at::Tensor y = get_replica_context().all_reduce(op, x) * (worker.index + 1);
    return torch::autograd::grad({y}, {x})[0];
  }));
}

void write_variable(const Worker& worker, const std::string& then, const Variable& variable) {
  if (then == "each replica assigns worker index + 1") {
    worker.strategy.run([&] { variable.assign(at::scalar_tensor(worker.index + 1.0f)); });
  } else if (then == "assign 6 in scope") {
    variable.assign(6.0);
  } else if (then != "nothing") {
    throw HarnessError("[multi_worker] unknown: then=" + then);
  }
}

Json variable(const Worker& worker, const Case& test_case) {
  Case own = test_case;
  own.in["initial"] = 10.0 + worker.index;
  const Variable made = variable_of(own, worker.strategy);
  const Json start = copies_json(made);
  const Scope scope = worker.strategy.scope();
  write_variable(worker, test_case.text("then"), made);
  return {{"start", start}, {"copies", copies_json(made)}, {"read", plain_json(made.read_value())}};
}

Json update_config_proto(const Worker& worker, const Case&) {
  const RuntimeConfig config = worker.strategy.update_config_proto({});
  return {{"group_leader", config.collective_group_leader},
          {"device_filters", config.device_filters},
          {"isolate_session_state", config.isolate_session_state}};
}

Json distribute_values_from_function(const Worker& worker, const Case&) {
  return to_json(worker.strategy.distribute_values_from_function([](const ValueContext& context) {
    return at::tensor({context.replica_id_in_sync_group, context.num_replicas_in_sync}, at::kInt);
  }));
}

Json answer(const Case& test_case) {
  using Call = Json (*)(const Worker&, const Case&);
  static const std::map<std::string_view, Call> kCalls{
      {"facts", facts},
      {"input_context", input_context},
      {"steps", steps},
      {"from_function", from_function},
      {"reduce", reduce},
      {"reduce_to", reduce_to},
      {"batch_reduce_to", batch_reduce_to},
      {"all_reduce", all_reduce},
      {"all_reduce_slices", all_reduce_slices},
      {"gather", gather},
      {"all_gather", all_gather},
      {"gradient_all_reduce", gradient_all_reduce},
      {"variable", variable},
      {"update_config_proto", update_config_proto},
      {"distribute_values_from_function", distribute_values_from_function},
  };
  const auto call = kCalls.find(test_case.call);
  if (call == kCalls.end()) throw HarnessError("[multi_worker] unknown call: " + test_case.call);
  return call->second(Worker(), test_case);
}

/// Workers that could not answer are started anew, so that one bad case does not spoil the rest; but not for ever.
constexpr int kMaxFailures = 4;

}  // namespace

Outcome run(const Case& test_case) {
  static std::unique_ptr<WorkerProcesses> workers;
  static int num_failures = 0;
  if (num_failures == kMaxFailures) throw HarnessError("[multi_worker] workers failed too often in the cases before");
  const int count = test_case.in.at("workers");
  if (!workers || workers->count() != count) {
    workers.reset();
    workers = std::make_unique<WorkerProcesses>(count);
  }
  try {
    return Outcome::of_value(workers->answers(test_case));
  } catch (...) {
    ++num_failures;
    workers.reset();
    throw;
  }
}

Outcome run_on_worker(const Case& test_case) { return Outcome::of_value(answer(test_case)); }

}  // namespace lockstep::golden::drivers::multi_worker

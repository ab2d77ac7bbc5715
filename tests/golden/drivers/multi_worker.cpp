#include <array>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "tests/golden/drivers.h"
#include "tests/golden/pipelines.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"
#include "tests/golden/variables.h"
#include "tests/golden/worker_processes.h"
#include "tests/golden/worker_values.h"

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

/// The names that texts of the data use on a worker with one replica.
NamedNumbers names_on(int worker, int num_workers) {
  const auto index = static_cast<double>(worker);
  const auto count = static_cast<double>(num_workers);
  return {{"worker index", index}, {"index", index},   {"replica id", index},
          {"id", index},           {"workers", count}, {"count", count}};
}

NamedNumbers names_on(const Worker& worker) { return names_on(worker.index, worker.strategy.num_replicas_in_sync()); }

/// Returns the tensor that a text of the data stands for on a worker.
at::Tensor tensor_of(std::string_view text, const Worker& worker) { return tensor_in(text, names_on(worker)); }

constexpr std::string_view kFromRun = "run: ";
constexpr std::string_view kOnHost = "host ";

/// Returns `text` without `prefix`, and whether it was there.
std::pair<std::string_view, bool> without(std::string_view prefix, std::string_view text) {
  return text.starts_with(prefix) ? std::pair(text.substr(prefix.size()), true) : std::pair(text, false);
}

/// Calls `f` with a tensor that the program itself has, or with what `run` returned.
template <class F>
Json with_value(const Worker& worker, std::string_view text, bool from_run, F&& f) {
  const at::Tensor value = tensor_of(text, worker);
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
  if (!argument.is_string()) return argument;
  const NamedNumbers names = names_on(context.input_pipeline_id, context.num_input_pipelines);
  return static_cast<int64_t>(number_in(argument.get<std::string>(), names));
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
  const auto input = detail::distribute_node(detail::Access::impl(worker.strategy), pipeline_of(test_case), {});
  const PerReplica<data::ElementSpec> spec = detail::distributed_spec(*input);
  return {{"steps", own_steps(input, test_case)}, {"element_spec", to_json(spec[0].leaves->at(0).shape)}};
}

Json from_function(const Worker& worker, const Case& test_case) {
  const auto make = [&](const InputContext& context) { return pipeline_of(pipeline_on_worker(test_case, context)); };
  return own_steps(detail::distribute_from_function(detail::Access::impl(worker.strategy), make, {}), test_case);
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
  const at::Tensor one = tensor_of(without(kOnHost, value).first, worker);
  return to_json(worker.strategy.extended().reduce_to(ReduceOp(test_case.text("op")), one, one));
}

/// Splits "host 1.0, host 2.0" into its values.
std::vector<std::string> values_in(const std::string& text) {
  static const std::regex separator(", (?=host )");
  return {std::sregex_token_iterator(text.begin(), text.end(), separator, -1), std::sregex_token_iterator()};
}

Json batch_reduce_to(const Worker& worker, const Case& test_case) {
  std::vector<std::pair<PerReplica<at::Tensor>, Destinations>> values;
  for (const std::string& text : values_in(test_case.text("values"))) {
    const at::Tensor one = tensor_of(without(kOnHost, text).first, worker);
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
      [&] { return get_replica_context().all_reduce(op, tensor_of(test_case.text("value"), worker)); }));
}

Json all_gather(const Worker& worker, const Case& test_case) {
  const int64_t axis = test_case.in.at("axis");
  return to_json(worker.strategy.run(
      [&] { return get_replica_context().all_gather(tensor_of(test_case.text("value"), worker), axis); }));
}

IndexedSlices slices_of(const Case& test_case, const Worker& worker) {
  const std::vector<int64_t> dense_shape = test_case.in.at("dense_shape");
  const at::Tensor indices = tensor_of(test_case.text("indices") + ", int32", worker);
  std::vector<int64_t> shape = dense_shape;
  shape.at(0) = indices.size(0);
  const std::string values = test_case.text("values");
  return {indices, values == "ones" ? at::ones(shape) : tensor_of(values, worker), dense_shape};
}

Json all_reduce_slices(const Worker& worker, const Case& test_case) {
  const ReduceOp op(test_case.text("op"));
  return to_json(
      worker.strategy.run([&] { return get_replica_context().all_reduce(op, slices_of(test_case, worker)); }));
}

Json gradient_all_reduce(const Worker& worker, const Case& test_case) {
  const ReduceOp op(test_case.text("op"));
  const std::string y_text = test_case.text("y");
  const auto [factor_text, is_product] = without("all_reduce(x) * ", y_text);
  if (!is_product) throw HarnessError("[multi_worker] unknown: y=" + y_text);
  const double factor = number_in(factor_text, names_on(worker));
  return to_json(worker.strategy.run([&] {
    const at::Tensor x = at::scalar_tensor(1.0f).requires_grad_();
    const at::Tensor y = get_replica_context().all_reduce(op, x) * factor;
    return torch::autograd::grad({y}, {x})[0];
  }));
}

std::string named_write(const std::string& verb) {
  return verb == "assign" ? "assign" : verb == "add" ? "assign_add" : "assign_sub";
}

void write_variable(const Worker& worker, const std::string& then, const Variable& variable) {
  static const std::regex in_replicas("each replica (assign|add|subtract)s (.*)");
  static const std::regex in_scope("(assign|add|subtract) (.*) in scope");
  std::smatch match;
  if (std::regex_match(then, match, in_replicas)) {
    const std::string op = match[1];
    const at::Tensor value = tensor_of(match[2].str(), worker);
    worker.strategy.run([&] { write(variable, named_write(op), value); });
  } else if (std::regex_match(then, match, in_scope)) {
    write(variable, named_write(match[1]), number_in(match[2].str(), names_on(worker)));
  } else if (then != "nothing") {
    throw HarnessError("[multi_worker] unknown: then=" + then);
  }
}

Json variable(const Worker& worker, const Case& test_case) {
  Case own = test_case;
  if (const std::string initial = test_case.text("initial"); !initial.empty()) {
    own.in["initial"] = number_in(initial, names_on(worker));
  }
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

/// The function returns a tuple of numbers, "(replica id, count)", as one int32 tensor, or one number.
Json distribute_values_from_function(const Worker& worker, const Case& test_case) {
  std::string text = test_case.text("function");
  if (text.starts_with('(') && text.ends_with(')')) text = "[" + text.substr(1, text.size() - 2) + "]";
  return to_json(worker.strategy.distribute_values_from_function([&](const ValueContext& context) {
    return tensor_in(text + ", int32", names_on(context.replica_id_in_sync_group, context.num_replicas_in_sync));
  }));
}

/// The id of this worker's only replica, as a tensor: what TensorFlow's context returns.
at::Tensor own_replica_id() { return at::scalar_tensor(get_replica_context().replica_id_in_sync_group(), at::kInt); }

Json replica_id(const Worker& worker, const Case&) { return to_json(worker.strategy.run(own_replica_id)); }

/// The local results of a value of the program, of what `run` returns, or of the replica ids if no value is given.
Json local_results(const Worker& worker, const Case& test_case) {
  const std::string value = test_case.text("value");
  const auto [of_run, from_run] = without(kFromRun, value);
  const std::string_view text = without(kOnHost, of_run).first;
  const std::vector<at::Tensor> results =
      value.empty() ? worker.strategy.local_results(worker.strategy.run(own_replica_id))
      : from_run    ? worker.strategy.local_results(worker.strategy.run([&] { return tensor_of(text, worker); }))
                    : worker.strategy.local_results(tensor_of(text, worker));
  Json items = Json::array();
  for (const at::Tensor& result : results) items.push_back(to_json(result));
  return {{"tuple", items}};
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
      {"replica_id", replica_id},
      {"local_results", local_results},
  };
  const auto call = kCalls.find(test_case.call);
  if (call == kCalls.end()) throw HarnessError("[multi_worker] unknown call: " + test_case.call);
  return call->second(Worker(), test_case);
}

/// Writes scalars as numbers and tuples as lists where the data does.
Json written_like(const Json& expected, const Json& answer) {
  if (expected.is_number() && answer.is_object() && answer.contains("data") && answer.at("shape").empty()) {
    return answer.at("data").at(0);
  }
  if (expected.is_array() && answer.is_object() && answer.contains("tuple")) {
    return written_like(expected, answer.at("tuple"));
  }
  Json written = answer;
  if (expected.is_array() && answer.is_array() && expected.size() == answer.size()) {
    for (size_t i = 0; i < answer.size(); ++i) written[i] = written_like(expected[i], answer[i]);
  }
  return written;
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
    return Outcome::of_value(written_like(test_case.out, workers->answers(test_case)));
  } catch (...) {
    ++num_failures;
    workers.reset();
    throw;
  }
}

Outcome run_on_worker(const Case& test_case) { return Outcome::of_value(answer(test_case)); }

}  // namespace lockstep::golden::drivers::multi_worker

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/input/distributed_input.h"
#include "tests/golden/drivers.h"
#include "tests/golden/pipelines.h"
#include "tests/golden/strategies.h"

namespace lockstep::golden::drivers::rebatch_and_shard {
namespace {

using Input = std::shared_ptr<const detail::DistributedInput>;

constexpr size_t kMaxSteps = 12;
constexpr size_t kMaxEndlessSteps = 5;
constexpr size_t kMaxOptionals = 6;

Json steps_of(const Input& input) {
  return ids_of_steps(input, detail::num_steps(*input).is_infinite() ? kMaxEndlessSteps : kMaxSteps);
}

/// The same with the empty optional that follows the last step.
Json optionals_of(const Input& input) {
  detail::StepIterator iterator(input, 0);
  Json optionals = Json::array();
  while (optionals.size() < kMaxOptionals) {
    optionals.push_back(next_ids(iterator));
    if (optionals.back().is_null()) break;
  }
  return optionals;
}

Json spec_of(const Input& input) {
  const PerReplica<data::ElementSpec> spec = detail::distributed_spec(*input);
  return to_json(std::vector<data::ElementSpec>(spec.begin(), spec.end()));
}

Json cardinality_of(const Input& input) {
  const data::Cardinality steps = detail::num_steps(*input);
  if (steps.is_infinite()) return "infinite";
  return steps.is_known() ? Json(*steps.size()) : Json("unknown");
}

/// Distributes the case's pipeline as what a dataset function returns, and notes for which contexts it was called.
Input from_function(const Strategy& strategy, const Case& test_case, const InputOptions& options, Json& contexts) {
  contexts = Json::array();
  const auto make = [&](const InputContext& context) {
    contexts.push_back({context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync});
    return pipeline_of(test_case);
  };
  return detail::distribute_from_function(detail::Access::impl(strategy), make, options);
}

Json all_of_function(const Strategy& strategy, const Case& test_case) {
  Json contexts;
  const Input input = from_function(strategy, test_case, {}, contexts);
  return {{"contexts", contexts},
          {"steps", steps_of(input)},
          {"optionals", optionals_of(input)},
          {"element_spec", spec_of(input)}};
}

/// Names the device of each replica's batch, as the library does, if the batch is there. To LibTorch all logical CPUs
/// are one device.
Json devices_of(const Input& input) {
  detail::StepIterator iterator(input, 0);
  std::vector<data::Element> elements;
  iterator.next(elements);
  const std::vector<std::string> names = detail::batch_devices(*input);
  Json devices = Json::array();
  for (size_t replica = 0; replica < elements.size(); ++replica) {
    const c10::Device device = data::detail::to_tensor(elements[replica].leaves[0]).device();
    const bool is_there = device == find_logical_device(names.at(replica)).torch_device;
    devices.push_back(is_there ? names[replica] : names[replica] + ", but the tensor is on " + device.str());
  }
  return devices;
}

Json with_options(const Strategy& strategy, const Case& test_case) {
  const InputOptions options{.fetch_to_device = test_case.in.at("fetch_to_device"),
                             .replication_mode = test_case.text("mode") == "PER_REPLICA"
                                                     ? InputReplicationMode::PerReplica
                                                     : InputReplicationMode::PerWorker,
                             .place_dataset_on_device = test_case.in.at("place_dataset_on_device"),
                             .per_replica_buffer_size = test_case.in.at("per_replica_buffer_size")};
  Json contexts = Json::array();
  const Input input = test_case.text("api") == "function"
                          ? from_function(strategy, test_case, options, contexts)
                          : detail::distribute_node(detail::Access::impl(strategy), pipeline_of(test_case), options);
  return {{"contexts", contexts}, {"steps", steps_of(input)}, {"devices", devices_of(input)}};
}

Json batch_size_of_context(const Case& test_case) {
  const InputContext context{.num_input_pipelines = test_case.in.at("num_input_pipelines"),
                             .input_pipeline_id = test_case.in.at("input_pipeline_id"),
                             .num_replicas_in_sync = test_case.in.at("num_replicas_in_sync")};
  return {{"size", context.get_per_replica_batch_size(test_case.in.at("global"))}, {"str", str(context)}};
}

Json answer(const Case& test_case) {
  if (test_case.call == "get_per_replica_batch_size") return batch_size_of_context(test_case);
  const LogicalCpus cpus(test_case);
  const Strategy strategy = strategy_of(test_case);
  if (test_case.call == "input_options") return with_options(strategy, test_case);
  if (test_case.call == "distribute_datasets_from_function") return all_of_function(strategy, test_case);
  if (test_case.call == "distribute_datasets_from_function_steps") {
    Json contexts;
    return steps_of(from_function(strategy, test_case, {}, contexts));
  }
  const Input input = detail::distribute_node(detail::Access::impl(strategy), pipeline_of(test_case), {});
  if (test_case.call == "steps") return steps_of(input);
  if (test_case.call == "element_spec") return spec_of(input);
  if (test_case.call == "cardinality") return cardinality_of(input);
  if (test_case.call == "get_next_as_optional") return optionals_of(input);
  throw HarnessError("[rebatch_and_shard] unknown call: " + test_case.call);
}

}  // namespace

Outcome run(const Case& test_case) { return Outcome::of_value(answer(test_case)); }

}  // namespace lockstep::golden::drivers::rebatch_and_shard

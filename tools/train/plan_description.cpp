#include "tools/train/plan_description.h"

#include <algorithm>
#include <iostream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/train/estimate.h"

namespace lockstep::tools {
namespace {

/// Where the first replica computes. Programs for TPU cores are not measured: a step on the CPU stands for them.
c10::Device measured_device(const StrategyPlan& where) {
  if (where.devices.empty()) return c10::DeviceType::CPU;
  const std::string& name = where.devices[0];
  for (const LogicalDevice& device : list_logical_devices()) {
    if (device.name == name || device.name.ends_with("device:" + name)) return device.torch_device;
  }
  return c10::DeviceType::CPU;
}

/// The moving average: one copy of the parameters, of which each replica has a part; each TPU core has all of it.
void add_average(MemoryEstimate& estimate, const StrategyPlan& where, int64_t replicas, int64_t bytes) {
  PlaceMemory& place = estimate.places[0];
  const bool is_whole = where.name == "tpu" || place.name != "each device";
  place.optimizer_state += is_whole ? bytes : (bytes + replicas - 1) / replicas;
}

Json describe_memory(const TrainPlan& plan, const TrainData& data, const StrategyPlan& where, int64_t local_replicas,
                     int64_t rows) {
  Example example;
  for (const auto& [inputs, targets] : data.training.batches(1, 0)) {
    example = {inputs[0], targets[0]};
    break;
  }
  const TrainingPlan training{.strategy = estimated_strategy(where.name),
                              .replicas = static_cast<int>(local_replicas),
                              .workers = where.num_workers,
                              .device = measured_device(where)};
  const EstimatedStep step = make_estimated_step(plan, example, training.device, where.name == "tpu");
  MemoryEstimate estimate = estimate_memory(step, rows, training);
  const int64_t average = plan.settings.has("ema") ? estimate.replica.parameters : 0;
  add_average(estimate, where, local_replicas, average);
  const StepMemory& replica = estimate.replica;
  Json memory{{"parameters_of_a_replica", replica.parameters},
              {"gradients_of_a_replica", replica.gradients},
              {"activations_of_a_replica", replica.activations},
              {"step_of_a_replica_at_most", std::max(replica.passes, replica.update)},
              {"optimizer_state", replica.optimizer_state},
              {"moving_average", average}};
  for (const PlaceMemory& place : estimate.places) memory[place.name] = place.total();
  memory["verdict"] = estimate.verdict();
  return memory;
}

std::string text_of_value(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

Json describe_training(const TrainPlan& plan, const TrainData& data, const StrategyPlan& where,
                       const Strategy& strategy, const std::string& folder) {
  const std::vector<std::string> devices = where.devices.empty() ? strategy.extended().worker_devices() : where.devices;
  const auto local_replicas = static_cast<int64_t>(devices.size());
  const int64_t replicas = local_replicas * where.num_workers;
  const int64_t batch = plan.settings.integer("batch-size");
  const int64_t rows = (std::min(batch, plan.examples) + replicas - 1) / replicas;
  int64_t parameters = 0;
  for (const auto& parameter : plan.make_model()->parameters()) parameters += parameter.numel();
  Json result;
  result["model"] = plan.settings.text("model");
  result["parameters"] = parameters;
  result["data"] = plan.form.to_json();
  result["examples"] = plan.examples;
  result["validation_examples"] = plan.validation_examples;
  result["strategy"] = where.name;
  result["workers"] = where.num_workers;
  result["devices"] = devices;
  result["batch_size"] = batch;
  result["batch_of_a_replica"] = (batch + replicas - 1) / replicas;
  result["steps_per_epoch"] = plan.steps_per_epoch();
  result["epochs"] = plan.settings.integer("epochs");
  result["memory"] = describe_memory(plan, data, where, local_replicas, rows);
  result["folder"] = folder;
  result["settings"] = plan.settings.json();
  return result;
}

void print_description(const Json& description, ResultStyle style) {
  if (style == ResultStyle::Json) return print_result(description, style);
  for (const auto& [name, value] : description.items()) {
    if (!value.is_object()) {
      const bool has_time = name == "folder" && !description["settings"].contains("folder");
      std::cout << name << ": " << text_of_value(value) << (has_time ? " (TIME is that of the start)" : "") << '\n';
      continue;
    }
    std::cout << name << ":\n";
    for (const auto& [key, each] : value.items()) {
      const bool is_size = name == "memory" && each.is_number_integer();
      std::cout << "  " << key << ": " << (is_size ? bytes_text(each.get<int64_t>()) : text_of_value(each)) << '\n';
    }
  }
}

}  // namespace lockstep::tools

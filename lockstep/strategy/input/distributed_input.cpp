#include "lockstep/strategy/input/distributed_input.h"

#include <algorithm>
#include <optional>
#include <span>

#include <ATen/Context.h>

#include "lockstep/base/error.h"
#include "lockstep/data/rewrites/worker_pipeline.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/random.h"
#include "lockstep/strategy/input/step_reader.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Returns the pipeline of some local replicas, whose batches are on their devices or on the host.
InputPipeline pipeline_for(data::NodePtr node, std::span<const LogicalDevice> replicas, const InputOptions& options) {
  const bool on_host = !options.fetch_to_device && !options.place_dataset_on_device;
  InputPipeline pipeline{.node = std::move(node), .devices = {}, .is_placed = options.place_dataset_on_device};
  for (const LogicalDevice& replica : replicas) {
    pipeline.devices.push_back(on_host ? c10::Device(c10::kCPU) : replica.torch_device);
    pipeline.names.push_back(on_host ? host_for_device(replica.name) : replica.name);
  }
  return pipeline;
}

/// Calls the dataset function, on the replica's device if the dataset is placed there.
data::NodePtr call_dataset_function(const std::function<data::NodePtr(const InputContext&)>& make,
                                    const InputContext& context, const LogicalDevice* placed_on) {
  std::optional<DeviceScope> scope;
  if (placed_on != nullptr) scope.emplace(placed_on->name);
  return make(context);
}

void check_buffer(const InputOptions& options) {
  LOCKSTEP_CHECK_VALUE(
      options.per_replica_buffer_size >= 0,
      "[InputOptions] the buffer must not be negative: per_replica_buffer_size=", options.per_replica_buffer_size);
}

void check_placement(const InputOptions& options) {
  if (!options.place_dataset_on_device) return;
  LOCKSTEP_CHECK_VALUE(options.replication_mode == InputReplicationMode::PerReplica,
                       "[distribute_datasets_from_function] place_dataset_on_device needs a pipeline for each replica: "
                       "set replication_mode to InputReplicationMode::PerReplica");
  LOCKSTEP_CHECK_VALUE(!options.fetch_to_device,
                       "[distribute_datasets_from_function] a dataset that is on its device is not fetched to it: "
                       "place_dataset_on_device=true needs fetch_to_device=false");
}

}  // namespace

std::shared_ptr<data::Epochs> epochs_of(const DistributedInput& input) {
  std::vector<std::shared_ptr<data::Epochs>> parts;
  for (const InputPipeline& pipeline : input.pipelines) parts.push_back(pipeline.node->epochs());
  return data::Epochs::shared_by(parts);
}

uint64_t start_epoch(const DistributedInput& input, data::Epochs& epochs) {
  // Workers that have started epochs of the same source by themselves, as one that evaluates alone does, have another
  // number.
  const uint64_t epoch = input.strategy->of_first_worker(epochs.start());
  epochs.advance_to(epoch + 1);
  return epoch;
}

std::shared_ptr<data::Epochs> drawn_epochs(const StrategyImpl& strategy) {
  // Without the highest bits, so that counting does not overflow and the number is a positive int64.
  const uint64_t drawn = draw_bits(at::globalContext().defaultGenerator(at::kCPU)) >> 2;
  return std::make_shared<data::Epochs>(strategy.of_first_worker(drawn));
}

void check_per_worker(InputReplicationMode mode) {
  LOCKSTEP_CHECK_VALUE(mode == InputReplicationMode::PerWorker,
                       "[make_input_fn_iterator] only InputReplicationMode::PerWorker is supported; use "
                       "distribute_datasets_from_function for a pipeline for each replica");
}

PerReplica<data::ElementSpec> distributed_spec(const DistributedInput& input) {
  c10::SmallVector<data::ElementSpec, 2> specs;
  for (const InputPipeline& pipeline : input.pipelines) {
    data::ElementSpec spec = pipeline.node->spec();
    if (input.num_workers > 1) {
      // Any worker may run out of data earlier than others, so any batch may be smaller.
      spec = spec.map_leaves([](data::LeafSpec leaf) {
        if (leaf.shape.has_rank() && leaf.shape.rank() > 0) {
          leaf.shape = leaf.shape.without_leading().with_leading(std::nullopt);
        }
        return leaf;
      });
    }
    specs.append(pipeline.devices.size(), spec);
  }
  if (specs.size() == 1 && input.num_workers == 1) return PerReplica<data::ElementSpec>::bare(specs.front());
  return PerReplica<data::ElementSpec>(std::move(specs));
}

std::vector<std::string> batch_devices(const DistributedInput& input) {
  std::vector<std::string> names;
  for (const InputPipeline& pipeline : input.pipelines) {
    names.insert(names.end(), pipeline.names.begin(), pipeline.names.end());
  }
  return names;
}

data::Cardinality num_steps(const DistributedInput& input) {
  auto steps = data::Cardinality::exactly(0);
  for (const InputPipeline& pipeline : input.pipelines) {
    const auto replicas = static_cast<int64_t>(pipeline.devices.size());
    const auto own = pipeline.node->cardinality().map([&](int64_t n) { return (n + replicas - 1) / replicas; });
    if (!own.is_known()) return own;
    steps = data::Cardinality::exactly(std::max(*steps.size(), *own.size()));
  }
  // How many are dropped depends on the rows of batches.
  if (input.options.empty == EmptyBatch::Drop) return data::Cardinality::unknown();
  return steps;
}

std::shared_ptr<const DistributedInput> distribute_node(const StrategyImpl& strategy, const data::NodePtr& dataset,
                                                        const InputOptions& options) {
  LOCKSTEP_CHECK_IMPLEMENTED(options.replication_mode == InputReplicationMode::PerWorker,
                             "[distribute_dataset] InputReplicationMode::PerReplica is for "
                             "distribute_datasets_from_function of MirroredStrategy: strategy=",
                             strategy.type_name());
  check_buffer(options);
  LOCKSTEP_CHECK_VALUE(!options.place_dataset_on_device,
                       "[distribute_dataset] one dataset for several replicas is on the host: "
                       "place_dataset_on_device=true needs distribute_datasets_from_function with "
                       "InputReplicationMode::PerReplica");
  const data::detail::InputWorker worker = strategy.input_worker();
  const data::detail::WorkerPipeline pipeline = data::detail::worker_pipeline(dataset, worker);
  return std::make_shared<DistributedInput>(
      DistributedInput{.pipelines = {pipeline_for(pipeline.node, strategy.devices(), options)},
                       .options = options,
                       .strategy = strategy.shared_from_this(),
                       .any_worker = strategy.any_worker(),
                       .description = data::detail::describe(*dataset) + pipeline.cut,
                       .num_workers = worker.num_workers,
                       .worker = worker.index,
                       .order_is_global = pipeline.order_is_global,
                       .reads_own_elements = pipeline.reads_own_elements});
}

std::shared_ptr<const DistributedInput> distribute_from_function(
    const StrategyImpl& strategy, const std::function<data::NodePtr(const InputContext&)>& make,
    const InputOptions& options) {
  const bool per_replica = options.replication_mode == InputReplicationMode::PerReplica;
  LOCKSTEP_CHECK_IMPLEMENTED(!per_replica || strategy.supports_input_per_replica(),
                             "[distribute_datasets_from_function] InputReplicationMode::PerReplica is for "
                             "MirroredStrategy alone: strategy=",
                             strategy.type_name());
  check_buffer(options);
  check_placement(options);
  const data::detail::InputWorker worker = strategy.input_worker();
  const std::span<const LogicalDevice> devices = strategy.devices();
  auto input = std::make_shared<DistributedInput>(DistributedInput{.options = options,
                                                                   .strategy = strategy.shared_from_this(),
                                                                   .any_worker = strategy.any_worker(),
                                                                   .num_workers = worker.num_workers,
                                                                   .worker = worker.index,
                                                                   .order_is_global = worker.num_workers == 1,
                                                                   .reads_own_elements = worker.num_workers > 1});
  const auto num_local = static_cast<int>(per_replica ? devices.size() : 1);
  for (int i = 0; i < num_local; ++i) {
    const InputContext context{.num_input_pipelines = static_cast<int>(worker.num_workers) * num_local,
                               .input_pipeline_id = static_cast<int>(worker.index) * num_local + i,
                               .num_replicas_in_sync = static_cast<int>(worker.num_replicas())};
    data::NodePtr node = call_dataset_function(make, context, options.place_dataset_on_device ? &devices[i] : nullptr);
    input->description += (i > 0 ? " + " : "") + data::detail::describe(*node);
    input->pipelines.push_back(pipeline_for(std::move(node), per_replica ? devices.subspan(i, 1) : devices, options));
    input->pipelines.back().number = static_cast<uint64_t>(context.input_pipeline_id);
  }
  // A step takes an element for each replica, so a position is valid for this number of replicas and pipelines only.
  input->description +=
      c10::str(" in ", worker.num_workers * num_local, " pipelines on ", worker.num_replicas(), " replicas");
  return input;
}

}  // namespace lockstep::detail

#include "lockstep/strategy/distributed_input.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/data/rewrites/worker_pipeline.h"
#include "lockstep/data/transforms/rows.h"
#include "lockstep/strategy/distributed_dataset.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/value/print.h"

namespace lockstep {

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  LOCKSTEP_CHECK_VALUE(global_batch_size % num_replicas_in_sync == 0,
                       "[get_per_replica_batch_size] the global batch must be divisible by the number of replicas: "
                       "global_batch_size=",
                       global_batch_size, ", num_replicas_in_sync=", num_replicas_in_sync);
  return global_batch_size / num_replicas_in_sync;
}

std::string InputContext::str() const {
  return c10::str("tf.distribute.InputContext(input pipeline id ", input_pipeline_id, ", total: ", num_input_pipelines,
                  ")");
}

std::ostream& operator<<(std::ostream& out, const InputContext& context) { return out << context.str(); }

std::ostream& operator<<(std::ostream& out, const InputOptions& options) {
  const char* mode = options.replication_mode == InputReplicationMode::PerWorker ? "PER_WORKER" : "PER_REPLICA";
  return out << "InputOptions(experimental_fetch_to_device=" << repr(options.fetch_to_device)
             << ", experimental_replication_mode=<InputReplicationMode." << mode << ": '" << mode
             << "'>, experimental_place_dataset_on_device=" << repr(options.place_dataset_on_device)
             << ", experimental_per_replica_buffer_size=" << options.per_replica_buffer_size << ")";
}

namespace detail {
namespace {

/// The tensors of one pipeline's replicas go to these devices; elements that stay on the host have none.
std::vector<c10::Device> device_of_replicas(const StrategyImpl& strategy) {
  std::vector<c10::Device> devices;
  for (const LogicalDevice& device : strategy.devices()) devices.push_back(device.torch_device);
  return devices;
}

/// A batch of no rows like `batch`, in memory of its own; nothing where the element is no batch.
std::optional<data::Element> without_rows(const data::Element& batch) {
  return data::detail::empty_rows(data::ElementSpec::of(batch));
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

void check_per_worker(InputReplicationMode mode) {
  LOCKSTEP_CHECK_VALUE(mode == InputReplicationMode::PerWorker,
                       "[make_input_fn_iterator] only InputReplicationMode::PerWorker is supported; use "
                       "distribute_datasets_from_function for a pipeline for each replica");
}

int DistributedInput::num_replicas() const {
  size_t count = 0;
  for (const InputPipeline& pipeline : pipelines) count += pipeline.devices.size();
  return static_cast<int>(count);
}

PerReplica<data::ElementSpec> distributed_spec(const DistributedInput& input) {
  c10::SmallVector<data::ElementSpec, 2> specs;
  for (const InputPipeline& pipeline : input.pipelines) {
    data::ElementSpec spec = pipeline.node->spec();
    if (input.num_workers > 1) {
      // Another worker may run out of data earlier, or this one: any batch may be smaller.
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

data::Cardinality num_steps(const DistributedInput& input) {
  auto steps = data::Cardinality::exactly(0);
  for (const InputPipeline& pipeline : input.pipelines) {
    const auto replicas = static_cast<int64_t>(pipeline.devices.size());
    const auto own = pipeline.node->cardinality().map([&](int64_t n) { return (n + replicas - 1) / replicas; });
    if (!own.is_known()) return own;
    steps = data::Cardinality::exactly(std::max(*steps.size(), *own.size()));
  }
  return steps;
}

bool Step::has_data() const {
  return std::any_of(elements.begin(), elements.end(), [](const auto& element) { return element.has_value(); });
}

StepReader::StepReader(const InputPipeline& pipeline, const data::Iteration& iteration)
    : iterator_(pipeline.node->iterator(iteration)), num_replicas_(pipeline.devices.size()) {}

void StepReader::prepare() {
  while (prepared_.size() < num_replicas_) {
    data::Element element;
    if (iterator_->next(element)) {
      prepared_.emplace_back(std::move(element));
    } else {
      prepared_.emplace_back();
    }
  }
}

void StepReader::read(Step& step) {
  prepare();
  for (auto& element : prepared_) step.elements.push_back(std::move(element));
  prepared_.clear();
}

int64_t StepReader::skip(int64_t count) {
  const auto per_step = static_cast<int64_t>(num_replicas_);
  return (iterator_->skip(count * per_step) + per_step - 1) / per_step;
}

const data::Element& EmptyBatches::pattern(const Step& step) {
  for (const auto& element : step.elements) {
    if (!element) continue;
    data::detail::num_rows(*element, "get_next");
    pattern_ = without_rows(*element);
    return *pattern_;
  }
  if (!pattern_) pattern_ = data::detail::empty_rows(node_->spec());
  LOCKSTEP_CHECK_VALUE(pattern_, "[get_next] this worker has no data and cannot tell what an empty batch looks like: ",
                       "element_spec=", node_->spec(), "; give the shapes in MapOptions::spec or GeneratorOptions");
  return *pattern_;
}

void EmptyBatches::fill(Step& step) {
  for (size_t replica = 0; replica < step.elements.size(); ++replica) {
    auto& element = step.elements[replica];
    if (element) {
      // For steps in which only other workers have data.
      if (!pattern_) pattern_ = without_rows(*element);
      continue;
    }
    element = pattern(step);
    for (data::Leaf& leaf : element->leaves) {
      if (auto* tensor = leaf.as<at::Tensor>()) *tensor = tensor->to(devices_[replica]);
    }
  }
}

std::shared_ptr<const DistributedInput> distribute_node(const StrategyImpl& strategy, const data::NodePtr& dataset,
                                                        const InputOptions& options) {
  LOCKSTEP_CHECK_IMPLEMENTED(options.replication_mode == InputReplicationMode::PerWorker,
                             "[distribute_dataset] InputReplicationMode::PerReplica is for "
                             "distribute_datasets_from_function of MirroredStrategy: strategy=",
                             strategy.type_name());
  check_buffer(options);
  const data::detail::InputWorker worker = strategy.input_worker();
  const data::detail::WorkerPipeline pipeline = data::detail::worker_pipeline(dataset, worker);
  return std::make_shared<DistributedInput>(
      DistributedInput{.pipelines = {{pipeline.node, device_of_replicas(strategy)}},
                       .options = options,
                       .strategy = strategy.shared_from_this(),
                       .any_worker = strategy.any_worker(),
                       .description = data::detail::describe(*dataset) + pipeline.cut,
                       .num_workers = worker.num_workers,
                       .order_is_global = pipeline.order_is_global});
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
  const std::vector<c10::Device> devices = device_of_replicas(strategy);
  auto input = std::make_shared<DistributedInput>(DistributedInput{.options = options,
                                                                   .strategy = strategy.shared_from_this(),
                                                                   .any_worker = strategy.any_worker(),
                                                                   .num_workers = worker.num_workers,
                                                                   .order_is_global = worker.num_workers == 1});
  const auto num_local = static_cast<int>(per_replica ? devices.size() : 1);
  for (int i = 0; i < num_local; ++i) {
    const InputContext context{.num_input_pipelines = static_cast<int>(worker.num_workers) * num_local,
                               .input_pipeline_id = static_cast<int>(worker.index) * num_local + i,
                               .num_replicas_in_sync = static_cast<int>(worker.num_replicas())};
    data::NodePtr node = make(context);
    input->description += (i > 0 ? " + " : "") + data::detail::describe(*node);
    input->pipelines.push_back({std::move(node), per_replica ? std::vector{devices[i]} : devices});
  }
  // A step takes an element for each replica, so that a position holds for one number of them only.
  input->description += c10::str(" on ", worker.num_replicas(), " replicas");
  return input;
}

}  // namespace detail
}  // namespace lockstep

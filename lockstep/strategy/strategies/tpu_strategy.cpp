#include "lockstep/strategy/strategies/tpu_strategy.h"

#include <mutex>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/cluster/resolvers/tpu.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/tpu/tpu_impl.h"
#include "lockstep/xla/engine/collectives.h"

namespace lockstep {
namespace {

std::shared_ptr<ClusterResolver> local_resolver() {
  return std::make_shared<TPUClusterResolver>(TPUOptions{.tpu = "local"});
}

/// The TPU of the argument, else the one that the environment names, else this machine's.
std::shared_ptr<ClusterResolver> named_resolver(const std::string& tpu) {
  if (!tpu.empty()) return std::make_shared<TPUClusterResolver>(TPUOptions{.tpu = tpu});
  const Environment variables;
  for (const char* variable :
       {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG", "TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"}) {
    if (variables.given(variable)) return std::make_shared<TPUClusterResolver>();
  }
  return local_resolver();
}

/// Every device is a replica.
tpu::DeviceAssignment one_core_each(const tpu::Topology& topology) {
  tpu::DeviceAssignment::CoreAssignment cores;
  for (const auto& task : topology.device_coordinates()) {
    for (const tpu::MeshCoordinates& core : task) cores.push_back({core});
  }
  return tpu::DeviceAssignment(topology, std::move(cores));
}

std::shared_ptr<detail::TPUImpl> make_impl(std::shared_ptr<ClusterResolver> resolver,
                                           std::optional<tpu::DeviceAssignment> assignment,
                                           const TPUStrategyOptions& options) {
  if (!resolver) resolver = local_resolver();
  const tpu::Topology topology = initialize_tpu_system(resolver);
  const int there = topology.num_tasks() * topology.num_tpus_per_task();
  const auto asked = assignment ? assignment->topology() : topology;
  LOCKSTEP_CHECK_VALUE(asked.num_tasks() == 1 && asked.num_tpus_per_task() <= there,
                       "[TPUStrategy] the assignment is for other devices than there are: hosts=", asked.num_tasks(),
                       ", devices of each=", asked.num_tpus_per_task(), ", this machine has ", there,
                       "; build it from what initialize_tpu_system returns");
  detail::TPUPlan plan{std::move(resolver), topology, assignment ? *assignment : one_core_each(topology),
                       options.use_spmd_partitioning};
  return std::make_shared<detail::TPUImpl>(std::move(plan));
}

const detail::TPUImpl& impl_of(const TPUStrategy& strategy) {
  return static_cast<const detail::TPUImpl&>(detail::Access::impl(strategy));
}

}  // namespace

TPUStrategy::TPUStrategy(std::shared_ptr<ClusterResolver> resolver,
                         std::optional<tpu::DeviceAssignment> device_assignment, const TPUStrategyOptions& options)
    : Strategy(make_impl(std::move(resolver), std::move(device_assignment), options)) {}

runner::TPUStrategy::TPUStrategy(const std::string& tpu) : lockstep::TPUStrategy(named_resolver(tpu)) {}

int TPUStrategy::num_logical_devices() const { return impl_of(*this).xla_devices().num_partitions(); }

const tpu::Topology& TPUStrategy::topology() const { return impl_of(*this).plan().topology; }

void TPUStrategy::check_split(const char* operation, const at::Tensor& tensor,
                              const std::vector<int64_t>& counts) const {
  LOCKSTEP_CHECK_VALUE(static_cast<int64_t>(counts.size()) == tensor.dim(), "[", operation,
                       "] there must be one number for each dimension: partition_dimensions=", at::IntArrayRef(counts),
                       ", tensor=", tensor.sizes());
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    LOCKSTEP_CHECK_VALUE(counts[i] > 0 && tensor.size(i) % counts[i] == 0, "[", operation, "] dimension ", i,
                         " of size ", tensor.size(i), " cannot be split into ", counts[i],
                         " equal parts: partition_dimensions=", at::IntArrayRef(counts));
  }
  const int64_t product = std::accumulate(counts.begin(), counts.end(), int64_t{1}, std::multiplies<>());
  LOCKSTEP_CHECK_VALUE(product == num_logical_devices(), "[", operation,
                       "] the number of parts must be that of the logical devices of a replica: partition_dimensions=",
                       at::IntArrayRef(counts), ", parts=", product, ", logical devices=", num_logical_devices());
}

at::Tensor TPUStrategy::split_to_logical_devices(const at::Tensor& tensor,
                                                 const std::vector<int64_t>& partition_dimensions) const {
  check_split("split_to_logical_devices", tensor, partition_dimensions);
  return xla::annotated(tensor, xla::tiled_layout(partition_dimensions));
}

at::Tensor TPUStrategy::replicate_to_logical_devices(const at::Tensor& tensor) const {
  return xla::annotated(tensor, xla::replicated_layout());
}

at::Tensor TPUStrategy::assign_to_logical_device(const at::Tensor& tensor, int logical_device_id) const {
  LOCKSTEP_CHECK_VALUE(!impl_of(*this).plan().use_spmd_partitioning,
                       "[assign_to_logical_device] with use_spmd_partitioning all logical devices compute everything ",
                       "together; make the strategy without it, or use split_to_logical_devices");
  LOCKSTEP_CHECK_VALUE(logical_device_id >= 0 && logical_device_id < num_logical_devices(),
                       "[assign_to_logical_device] there is no such logical device: logical_device_id=",
                       logical_device_id, ", allowed 0 to ", num_logical_devices() - 1);
  if (num_logical_devices() > 1) {
    static std::once_flag once;
    std::call_once(once, [] {
      LOCKSTEP_LOG(Error)
          << "[assign_to_logical_device] the partitioner of XLA cannot place work on one logical device: "
          << "all logical devices of the replica compute the tensor; its value is the same";
    });
  }
  return xla::annotated(tensor, xla::assigned_layout(logical_device_id));
}

void TPUStrategy::keep_split(const Variable& variable, const std::vector<int64_t>& partition_dimensions) const {
  detail::check_cross_replica(detail::Access::impl(*this), "keep_split");
  LOCKSTEP_CHECK_VALUE(variable.strategy() == *this,
                       "[keep_split] the variable was not made under this strategy: name=", variable.name());
  for (const at::Tensor& copy : variable.components()) {
    check_split("keep_split", copy, partition_dimensions);
    xla::set_layout(copy, xla::tiled_layout(partition_dimensions));
  }
}

void TPUStrategy::keep_split_parameter(const torch::nn::Module& module, const std::string& parameter,
                                       const std::vector<int64_t>& counts) const {
  detail::check_cross_replica(detail::Access::impl(*this), "keep_split");
  const auto parameters = module.named_parameters();
  const at::Tensor* found = parameters.find(parameter);
  LOCKSTEP_CHECK_VALUE(found != nullptr, "[keep_split] the module has no such parameter: parameter=", parameter,
                       ", allowed: ", c10::Join(", ", parameters.keys()));
  check_split("keep_split", *found, counts);
  xla::set_layout(*found, xla::tiled_layout(counts));
}

std::vector<size_t> TPUStrategy::bytes_per_logical_device(const at::Tensor& tensor) const {
  return xla::bytes_per_device(tensor);
}

}  // namespace lockstep

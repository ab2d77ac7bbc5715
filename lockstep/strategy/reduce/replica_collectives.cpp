#include "lockstep/strategy/reduce/replica_collectives.h"

#include <map>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/reduce/collective_gradients.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Applies a collective to the tensors of each device type: numbers are tensors on the CPU, beside tensors on GPUs.
/// What carries them there is not what `options` choose for the GPUs.
template <class Collective>
std::vector<at::Tensor> for_each_device_kind(std::vector<at::Tensor> tensors, const CommunicationOptions& options,
                                             Collective&& collective) {
  std::map<c10::DeviceType, std::vector<size_t>> kinds;
  for (size_t i = 0; i < tensors.size(); ++i) kinds[tensors[i].device().type()].push_back(i);
  for (const auto& [kind, indices] : kinds) {
    std::vector<at::Tensor> alike;
    for (const size_t i : indices) alike.push_back(tensors[i]);
    CommunicationOptions of_kind = options;
    if (kind == at::kCPU && kinds.size() > 1) of_kind.implementation = CommunicationImplementation::Auto;
    alike = collective(alike, of_kind);
    for (size_t k = 0; k < indices.size(); ++k) tensors[indices[k]] = alike[k];
  }
  return tensors;
}

void check_defined(const char* operation, const ReplicaPlace& place, const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(tensors[i].defined(), "[", operation, "] every tensor must be defined: tensor ", i, " of ",
                         tensors.size(), " is undefined on replica ", place.strategy.global_replica(place.replica),
                         "; every replica takes part with a tensor: give zeros of the shape that the others have ",
                         "where a replica has no value, such as a gradient that backward has not computed");
  }
}

/// The options of a call, with those of the strategy where the call has none. The strategy's implementation has chosen
/// its engine already.
CommunicationOptions merged_options(const StrategyImpl& strategy, const CommunicationOptions& options) {
  CommunicationOptions merged = strategy.communication_options().merge(options);
  merged.implementation = options.implementation;
  return merged;
}

CollectiveStatePtr state_of(const ReplicaPlace& place, const CommunicationOptions& options) {
  return c10::make_intrusive<CollectiveState>(place.group(), options, place.groups != nullptr);
}

}  // namespace

comm::Group ReplicaPlace::group() const {
  const comm::Group& all = strategy.group(replica);
  return groups == nullptr ? all : all.within(*groups);
}

std::vector<at::Tensor> all_reduce(const ReplicaPlace& place, ReduceOp op, std::vector<at::Tensor> tensors,
                                   const CommunicationOptions& given) {
  given.validate();
  check_defined("all_reduce", place, tensors);
  const CommunicationOptions options = merged_options(place.strategy, given);
  return for_each_device_kind(std::move(tensors), options,
                              [&](const std::vector<at::Tensor>& alike, const CommunicationOptions& of_kind) {
                                return differentiable_all_reduce(state_of(place, of_kind), op, alike);
                              });
}

std::vector<at::Tensor> all_gather(const ReplicaPlace& place, std::vector<at::Tensor> tensors, int64_t axis,
                                   const CommunicationOptions& given) {
  given.validate();
  check_defined("all_gather", place, tensors);
  if (place.strategy.num_replicas_in_sync() == 1) {
    for (at::Tensor& tensor : tensors) tensor = tensor.clone();
    return tensors;
  }
  for (const at::Tensor& tensor : tensors) {
    LOCKSTEP_CHECK_VALUE(tensor.dim() > 0, "[all_gather] scalars cannot be concatenated: rank=0; reshape them first");
    LOCKSTEP_CHECK_VALUE(axis >= -tensor.dim() && axis < tensor.dim(), "[all_gather] the axis must be in [",
                         -tensor.dim(), ", ", tensor.dim(), "): axis=", axis);
  }
  return differentiable_all_gather(state_of(place, merged_options(place.strategy, given)), axis, tensors);
}

std::vector<at::Tensor> broadcast(const ReplicaPlace& place, std::vector<at::Tensor> tensors, int root,
                                  const CommunicationOptions& given) {
  given.validate();
  check_defined("broadcast", place, tensors);
  const CommunicationOptions options = merged_options(place.strategy, given);
  return for_each_device_kind(std::move(tensors), options,
                              [&](const std::vector<at::Tensor>& alike, const CommunicationOptions& of_kind) {
                                return differentiable_broadcast(state_of(place, of_kind), root, alike);
                              });
}

std::vector<at::Tensor> reduce_scatter(const ReplicaPlace& place, ReduceOp op, std::vector<at::Tensor> tensors,
                                       const CommunicationOptions& given) {
  given.validate();
  check_defined("reduce_scatter", place, tensors);
  for (const at::Tensor& tensor : tensors) {
    LOCKSTEP_CHECK_VALUE(tensor.dim() > 0,
                         "[reduce_scatter] a scalar has no rows to share: shape=[]; reshape it first");
  }
  return differentiable_reduce_scatter(state_of(place, merged_options(place.strategy, given)), op, tensors);
}

std::vector<at::Tensor> all_to_all(const ReplicaPlace& place, std::vector<at::Tensor> tensors,
                                   const std::vector<int64_t>& split_sizes, const CommunicationOptions& given) {
  given.validate();
  check_defined("all_to_all", place, tensors);
  return differentiable_all_to_all(state_of(place, merged_options(place.strategy, given)), split_sizes, tensors);
}

void barrier(const ReplicaPlace& place, const CommunicationOptions& given) {
  given.validate();
  place.group().barrier(merged_options(place.strategy, given));
}

IndexedSlices all_reduce(const ReplicaPlace& place, ReduceOp op, const IndexedSlices& slices,
                         const CommunicationOptions& given) {
  given.validate();
  LOCKSTEP_CHECK_VALUE(op == ReduceOp::Sum || op == ReduceOp::Mean,
                       "[all_reduce] slices can be summed or averaged: op=", op);
  check_defined("all_reduce", place, {slices.indices, slices.values});
  if (place.strategy.num_replicas_in_sync() == 1) return slices;
  const comm::Group group = place.group();
  const CommunicationOptions options = merged_options(place.strategy, given);
  IndexedSlices all = slices;
  all.indices = group.all_gather(slices.indices, 0, options);
  all.values = group.all_gather(slices.values, 0, options);
  if (op == ReduceOp::Mean) all.values = divide_for_mean(all.values, group.size());
  return all;
}

}  // namespace lockstep::detail

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/strategy/input/distributed_dataset.h"

/// The elements of distributed datasets of numbers, as plain lists.
namespace lockstep::tests {

using Ids = std::vector<int64_t>;
/// ids[step][replica]
using StepIds = std::vector<std::vector<Ids>>;

inline Ids ids_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape({-1}).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

inline std::vector<Ids> ids_of(const PerReplica<at::Tensor>& batch) {
  std::vector<Ids> replicas;
  for (const at::Tensor& part : batch) replicas.push_back(ids_of(part));
  return replicas;
}

inline StepIds steps_of(const DistributedDataset<at::Tensor>& dataset) {
  StepIds steps;
  for (const auto& batch : dataset) steps.push_back(ids_of(batch));
  return steps;
}

inline StepIds rest_of(DistributedIterator<at::Tensor>& iterator) {
  StepIds steps;
  while (const auto batch = iterator.get_next_as_optional()) steps.push_back(ids_of(*batch));
  return steps;
}

/// All ids of one step.
inline Ids joined(const std::vector<Ids>& replicas) {
  Ids all;
  for (const Ids& ids : replicas) all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

inline std::vector<Ids> joined_steps(const StepIds& steps) {
  std::vector<Ids> all;
  for (const auto& step : steps) all.push_back(joined(step));
  return all;
}

}  // namespace lockstep::tests

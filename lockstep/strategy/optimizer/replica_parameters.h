#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Internal: the tensors of one replica that an optimizer works on.
namespace lockstep::detail {

struct LOCKSTEP_API ReplicaParameters {
  /// What the replica computes with. Backward writes gradients there.
  std::vector<at::Tensor> parameters;
  /// What is updated: `parameters`, or the tensors that the strategy stores once for all replicas.
  std::vector<at::Tensor> stored;
  /// Whether `stored` is one set of tensors for all replicas.
  bool stored_once = false;

  /// Whether the replica computes on another device than the one that stores its parameters.
  bool computes_elsewhere() const;
};

/// Parameters [begin, end).
struct ParameterRange {
  size_t begin = 0;
  size_t end = 0;

  bool contains(size_t parameter) const { return begin <= parameter && parameter < end; }
};

/// Whether replicas can each update a part of the parameter through its address.
bool can_be_sharded(const at::Tensor& parameter);

/// Waits until the calling thread's stream has finished; does nothing for CPUs.
void wait_for_stream(c10::Device device);

}  // namespace lockstep::detail

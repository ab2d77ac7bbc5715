#pragma once

#include <string>
#include <string_view>
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

  /// The name of each parameter; may be empty.
  std::vector<std::string> names;

  std::string_view name(size_t parameter) const { return names.empty() ? std::string_view() : names[parameter]; }

  /// Whether the replica computes on another device than the one that stores its parameters.
  bool computes_elsewhere() const;
  /// Whether replicas can each update a part of a parameter through an address.
  bool can_be_sharded(size_t parameter) const;
  /// Returns the tensor whose memory the replicas update in parts, for a parameter that can be sharded: the stored one,
  /// or a contiguous copy of it.
  at::Tensor values_to_update(size_t parameter) const;
};

/// Parameters [begin, end).
struct ParameterRange {
  size_t begin = 0;
  size_t end = 0;

  bool contains(size_t parameter) const { return begin <= parameter && parameter < end; }
};

/// Waits until the calling thread's stream has finished; does nothing for CPUs.
void wait_for_stream(c10::Device device);

}  // namespace lockstep::detail

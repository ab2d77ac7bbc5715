#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/replica_parameters.h"

/// Internal: what a replica publishes to the others for one update.
namespace lockstep::detail {

/// Whether a parameter has no gradient, a dense one or a sparse one.
enum Presence : uint8_t { kAbsent, kDense, kSparse };

Presence presence_of(const at::Tensor& gradient);

/// The gradients of one replica and where its parameters are: addresses, which replicas of other processes can read.
struct LOCKSTEP_API ReplicaGradients {
  struct Parameter {
    /// Values that are updated; null where they cannot be sharded.
    char* data = nullptr;
    /// Contiguous; null where it is absent or sparse.
    const char* gradient = nullptr;
    Presence presence = kAbsent;
    /// Whether the gradient is the sum over all replicas.
    bool reduced = false;
  };

  std::vector<Parameter> parameters;
  /// Contiguous or sparse, undefined where absent; empty where the replica belongs to another process.
  std::vector<at::Tensor> gradients;
  /// The owner of `Parameter::data`: contiguous, undefined where the parameter cannot be sharded; empty where the
  /// replica belongs to another process.
  std::vector<at::Tensor> values;
  /// The parameters in the order in which backward reached them, where buckets are still to be made of them.
  std::optional<std::vector<size_t>> order;

  void reserve(size_t num_parameters);
  /// `values` is what is updated of a parameter that can be sharded, undefined for others; `gradient` has passed the
  /// gate.
  void add_parameter(at::Tensor values, at::Tensor gradient, bool reduced);
};

/// What the replicas have published that read each other's memory, by their rank.
using AllGradients = std::vector<const ReplicaGradients*>;

/// Returns for each parameter the largest `Presence` of all replicas.
LOCKSTEP_API std::vector<char> presence(const AllGradients& all);

/// Whether the gradient of a parameter is the sum on all replicas. Where it is on some only, theirs count as zero,
/// except on the first of all replicas (see ReducedGradients).
bool is_sum_on_all(const AllGradients& all, size_t parameter);
/// Returns it for each parameter.
LOCKSTEP_API std::vector<char> sums_on_all(const AllGradients& all);
/// Whether a replica's gradient is added to those of others: it is not a sum, or the first replica's.
bool is_added(const AllGradients& all, size_t replica, size_t parameter);

}  // namespace lockstep::detail

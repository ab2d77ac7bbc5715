#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Internal: which gradients have been replaced by their sums over all replicas.
namespace lockstep::detail {

/// The gradients of one replica that are sums.
///
/// A sum is known by its tensor: writing it in place (clipping, scaling) leaves it a sum, clearing or replacing it does
/// not. When backward adds to a sum, the gradient stops being one. The first replica keeps the sum as a part of its
/// gradient, all others drop theirs first: the next reduction then counts the sum once. Replicas that are compiled as
/// one program make the same calls, so there each one keeps an equal share.
class LOCKSTEP_API ReducedGradients {
 public:
  /// `replica` of `num_replicas` in all workers has these parameters.
  ReducedGradients(std::vector<at::Tensor> parameters, int replica, int num_replicas);
  ~ReducedGradients();
  ReducedGradients(const ReducedGradients&) = delete;
  ReducedGradients& operator=(const ReducedGradients&) = delete;

  /// Whether the gradient of a parameter is the sum over all replicas. Throws if a sum was replaced by another tensor
  /// before it was used.
  bool is_sum(size_t parameter) const;
  /// The gradient of a parameter has been replaced by the sum.
  void mark(size_t parameter);
  /// Makes a sum that must be reduced again this replica's share of it.
  void take_share(size_t parameter);

  /// Whether a gradient was marked since the last `clear`. Equal on all replicas, which mark and clear together.
  bool any_marked() const;
  /// An update has used the sums.
  void set_used();
  /// The gradients are gone.
  void clear();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail

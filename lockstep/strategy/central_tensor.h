#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Inside: tensors that a strategy keeps once for all replicas.
namespace lockstep::detail {

class StrategyImpl;

/// A tensor on the parameter device of a strategy, and what each replica computes with in its place.
///
/// A replica on the same device sees the stored memory itself. On another device it sees a copy, which `refresh` makes
/// equal; or, for a table of which it will read single rows, the stored memory through the bus, without any copy.
/// What replicas see are separate tensors for autograd: each has a gradient of its own. A cheap handle.
class LOCKSTEP_API CentralTensor {
 public:
  enum class Use { Whole, SingleRows };

  /// Stores `value`: the memory itself where it is on the parameter device and nothing speaks against it, else a copy.
  CentralTensor(const StrategyImpl& strategy, const at::Tensor& value, Use use);

  const at::Tensor& stored() const { return stored_; }
  const at::Tensor& seen(int replica) const { return seen_[replica]; }
  const std::vector<at::Tensor>& seen() const { return seen_; }

  /// Whether a replica sees the stored memory, so that there is nothing to refresh.
  bool is_in_place(int replica) const { return in_place_[replica] != 0; }

  /// Makes what a replica sees equal to what is stored, in the order of the calling thread's stream; the host waits for
  /// it unless `in_background`.
  void refresh(int replica, bool in_background = false) const;
  void refresh_all() const;
  /// The other way round: stores what a replica sees.
  void store_what_is_seen(int replica) const;

 private:
  at::Tensor stored_;
  std::vector<at::Tensor> seen_;
  std::vector<char> in_place_;
};

/// Returns another tensor over the same memory: no view of it, and with a gradient and a version of its own.
LOCKSTEP_API at::Tensor alias_of(const at::Tensor& tensor);

}  // namespace lockstep::detail

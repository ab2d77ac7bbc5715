#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Internal: tensors that a strategy stores once for all replicas.
namespace lockstep::detail {

class StrategyImpl;

/// A tensor on the parameter device of a strategy, and for each replica a tensor to compute with (`seen`).
///
/// On the parameter device `seen` is the stored memory itself. On another device it is a copy, which `refresh` updates;
/// or, for a table of which the replica reads single rows, the stored memory mapped into the device's address space.
/// `seen` tensors are separate for autograd: each has a gradient of its own. A cheap handle.
class LOCKSTEP_API CentralTensor {
 public:
  enum class Use { Whole, SingleRows };

  /// Stores `value`: its memory if that is on the parameter device and needs no page-locking, else a copy.
  CentralTensor(const StrategyImpl& strategy, const at::Tensor& value, Use use);

  const at::Tensor& stored() const { return stored_; }
  const at::Tensor& seen(int replica) const { return seen_[replica]; }
  const std::vector<at::Tensor>& seen() const { return seen_; }

  /// Whether a replica reads the stored memory, so that there is nothing to refresh.
  bool is_in_place(int replica) const { return in_place_[replica] != 0; }

  /// Copies the stored values to a replica's tensor, on the calling thread's stream. The host waits for the copy unless
  /// `in_background`.
  void refresh(int replica, bool in_background = false) const;
  void refresh_all() const;
  /// Copies a replica's tensor to the stored one.
  void store_what_is_seen(int replica) const;

 private:
  at::Tensor stored_;
  std::vector<at::Tensor> seen_;
  std::vector<char> in_place_;
};

/// Returns another tensor over the same memory. It is no view: it has a gradient and a version of its own.
LOCKSTEP_API at::Tensor alias_of(const at::Tensor& tensor);

}  // namespace lockstep::detail

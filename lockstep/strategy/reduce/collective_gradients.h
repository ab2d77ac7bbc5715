#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/options.h"

/// Internal: the collectives of a replica that gradients flow through.
namespace lockstep::detail {

/// What the backward pass of a collective needs. It owns its group, so that it may outlive the strategy.
struct CollectiveState : torch::CustomClassHolder {
  CollectiveState(comm::Group group_, CommunicationOptions options_, bool is_within_)
      : group(std::move(group_)), options(options_), is_within(is_within_) {}

  const comm::Group group;
  const CommunicationOptions options;
  /// Whether there are several groups: what is gathered may have another size in each.
  const bool is_within;
};

using CollectiveStatePtr = c10::intrusive_ptr<CollectiveState>;

/// Whether one of the tensors requires a gradient, and gradients are recorded.
bool needs_gradient(const std::vector<at::Tensor>& tensors);

/// The collectives of `state.group`, with all their derivatives.
std::vector<at::Tensor> differentiable_all_reduce(const CollectiveStatePtr& state, ReduceOp op,
                                                  const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> differentiable_all_gather(const CollectiveStatePtr& state, int64_t axis,
                                                  const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> differentiable_broadcast(const CollectiveStatePtr& state, int root,
                                                 const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> differentiable_reduce_scatter(const CollectiveStatePtr& state, ReduceOp op,
                                                      const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> differentiable_all_to_all(const CollectiveStatePtr& state,
                                                  const std::vector<int64_t>& split_sizes,
                                                  const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::detail

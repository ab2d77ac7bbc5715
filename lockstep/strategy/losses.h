#pragma once

#include <concepts>
#include <optional>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep {

/// Returns the sum of the losses of this replica's examples divided by the number of examples in the whole batch, so
/// that the sum over replicas is the mean over the batch, whatever the replicas' shares.
///
/// `global_batch_size` defaults to the number of replicas times this replica's examples, which is only right where all
/// replicas have equally many. An empty loss, or a batch of size 0, gives 0. Each loss is multiplied by its
/// `sample_weight`, which broadcasts, and may have one dimension less or a last one of size 1 more than the losses.
LOCKSTEP_API at::Tensor average_loss(const at::Tensor& per_example_loss, std::optional<int64_t> global_batch_size = {},
                                     const std::optional<at::Tensor>& sample_weight = {});

/// A number of examples is a whole number.
at::Tensor average_loss(const at::Tensor& per_example_loss, std::floating_point auto global_batch_size,
                        const std::optional<at::Tensor>& sample_weight = {}) = delete;

/// Returns the sum of a regularization loss divided by the number of replicas, each of which adds it once.
LOCKSTEP_API at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss);

}  // namespace lockstep

#pragma once

#include <concepts>
#include <optional>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep {

/// Returns the sum of the losses of this replica's examples divided by the number of examples in the global batch. The
/// sum over replicas is then the mean over the batch, also if replicas have different numbers of examples.
///
/// Without `global_batch_size`, the examples of all replicas are counted: a collective of one number, which all
/// replicas call. So the last, smaller batch is divided by what it has. A given `global_batch_size` saves the
/// collective; a last batch with fewer examples then counts less. An empty loss, or a batch of size 0, gives 0. Each
/// loss is multiplied by its `sample_weight`, which broadcasts. The weights may have one dimension less than the
/// losses, or a last dimension of size 1 more.
LOCKSTEP_API at::Tensor average_loss(const at::Tensor& per_example_loss, std::optional<int64_t> global_batch_size = {},
                                     const std::optional<at::Tensor>& sample_weight = {});

/// Deleted: the number of examples is an integer.
at::Tensor average_loss(const at::Tensor& per_example_loss, std::floating_point auto global_batch_size,
                        const std::optional<at::Tensor>& sample_weight = {}) = delete;

/// Returns the sum of a regularization loss divided by the number of replicas. Each replica adds it to its loss.
LOCKSTEP_API at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss);

}  // namespace lockstep

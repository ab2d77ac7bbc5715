#pragma once

#include "lockstep/strategy/aten_overrides/batch_norm.h"

/// Internal: batch normalization with the statistics of all replicas.
namespace lockstep::nn::detail {

using lockstep::detail::BatchNormCall;

/// Inside a replica of a strategy with several, collective: normalizes with the mean and variance over the rows of all
/// replicas of all workers, and updates the running statistics with them, alike on all replicas. A replica without rows
/// takes part. Gradients flow; those of weight and bias are the sums over the replica's own rows, as for every
/// parameter.
///
/// One collective forward (all_gather of each replica's mean, squared distances and count) and one backward (all_reduce
/// of two sums). On XLA replicas compare their numbers of rows when they are traced, too.
at::Tensor synchronised_batch_norm(const BatchNormCall& call);

/// Whether the calling thread is in a replica of a strategy that has several.
bool is_in_one_of_several_replicas();

/// Lets the calls of marked tensors be synchronised: see BatchNormOverride.
void use_synchronised_batch_norm();

}  // namespace lockstep::nn::detail

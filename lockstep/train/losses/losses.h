#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/train/losses/loss.h"

/// Losses that count what they sum. Targets and outputs are those of LibTorch's functions of the same names.
namespace lockstep::losses {

struct CrossEntropyOptions {
  /// Targets with this value count neither in the sum nor in the number: the loss is the mean over all others, also
  /// where replicas have different numbers of them.
  std::optional<int64_t> ignore_index = std::nullopt;
  double label_smoothing = 0;
  /// A weight for each class, copied when the loss is made. The loss is divided by the sum of the weights of the
  /// targets, as LibTorch's mean is.
  at::Tensor class_weights = {};
};

/// Of logits [rows, classes, ...] and class indices [rows, ...].
LOCKSTEP_API Loss cross_entropy(const CrossEntropyOptions& options = {});
/// Of log-probabilities [rows, classes, ...] and class indices [rows, ...].
LOCKSTEP_API Loss nll();
/// Of logits and probabilities of the same shape.
LOCKSTEP_API Loss binary_cross_entropy_with_logits();
/// Mean squared error, mean absolute error, and Huber's loss, of tensors of the same shape.
LOCKSTEP_API Loss mse();
LOCKSTEP_API Loss mae();
LOCKSTEP_API Loss huber(double delta = 1);

}  // namespace lockstep::losses

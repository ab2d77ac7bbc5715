#pragma once

#include <optional>

namespace lockstep {

class LossScaler;

/// What is done with gradients between their sum over replicas and the update.
struct MinimizeOptions {
  /// Scales the summed gradients so that the norm of all together is at most this.
  std::optional<double> clip_norm = std::nullopt;
  /// Limits each element of the summed gradients to [-clip_value, clip_value], before their norm is computed.
  std::optional<double> clip_value = std::nullopt;
  /// Scales the loss, so that gradients of narrow types do not vanish, and skips updates by gradients that are not
  /// finite. Must outlive the call.
  const LossScaler* scaler = nullptr;
};

}  // namespace lockstep

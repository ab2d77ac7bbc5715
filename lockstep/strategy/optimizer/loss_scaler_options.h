#pragma once

#include <cstdint>

namespace lockstep {

/// How a scale follows the gradients; the defaults are those of PyTorch's GradScaler.
struct LossScalerOptions {
  /// The scale of the first update.
  double initial = 65536;
  /// What the scale is multiplied by after `growth_interval` updates in a row.
  double growth = 2;
  /// What the scale is multiplied by where gradients were not finite.
  double backoff = 0.5;
  /// The number of updates with finite gradients before the scale grows.
  int64_t growth_interval = 2000;
};

}  // namespace lockstep

#pragma once

#include <string>

#include "lockstep/cluster/environment.h"

namespace lockstep::tpu {

/// The TPU chips of a machine.
struct LocalChips {
  int num_chips = 0;
  /// Devices of a chip.
  int cores_per_chip = 1;
  /// The files or variables that were counted.
  std::string source{};
};

/// Counts the chips that this process may use, without a TPU runtime: TPU chips on the PCI bus, else /dev/accel*, else
/// groups in /dev/vfio; fewer where TPU_VISIBLE_CHIPS, or TPU_VISIBLE_DEVICES, lists them. `root` is the root
/// folder, "/" for this machine.
LocalChips local_chips(const std::string& root, const Environment& variables);

}  // namespace lockstep::tpu

#pragma once

namespace lockstep::xla {

/// Returns whether this machine has TPU chips, by the devices of their drivers.
bool has_tpu_chips();

}  // namespace lockstep::xla

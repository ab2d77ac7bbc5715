#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster/tpu/mesh.h"

/// The names of slices: "v3-8", "v4-16", "v5litepod-8", "v6e-8", "tpu7x-8".
namespace lockstep::tpu {

/// What a name says. Names of v5e and v6e count chips, all others count cores, of which each chip has two; v4 and v5p
/// join them to one device.
struct AcceleratorType {
  int num_chips = 0;
  /// Devices of a chip.
  int cores_per_chip = 1;
  /// Whether a host may have eight chips; others have four.
  bool has_large_hosts = false;

  int num_devices() const { return num_chips * cores_per_chip; }
};

/// Reads a name, or nothing where it is not that of a slice.
std::optional<AcceleratorType> find_accelerator_type(std::string_view name);

/// Returns the mesh of a slice by its name. Throws `c10::ValueError` that lists the names there are.
MeshShape mesh_of_type(std::string_view name);

/// Returns which block of a mesh an ordinary host has: 2x2x1 chips, or all of up to eight where hosts are large.
MeshShape usual_host(const MeshShape& mesh, bool has_large_hosts);

}  // namespace lockstep::tpu

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster/tpu/mesh.h"

/// The names of slices: "v3-8", "v4-16", "v5litepod-8", "v6e-8", "tpu7x-8".
namespace lockstep::tpu {

/// The slice of a name. Names of v5e and v6e count chips, all others count cores, two per chip; in v4 and v5p both
/// cores of a chip are one device.
struct AcceleratorType {
  int num_chips = 0;
  /// Devices of a chip.
  int cores_per_chip = 1;
  /// Whether a host may have eight chips; others have four.
  bool has_large_hosts = false;

  int num_devices() const { return num_chips * cores_per_chip; }
};

/// Parses a name; nothing where it is not that of a slice.
std::optional<AcceleratorType> find_accelerator_type(std::string_view name);

/// Returns the mesh of a slice by its name. Throws `c10::ValueError` that lists the known names.
MeshShape mesh_of_type(std::string_view name);

/// Returns the block of a mesh that a host has by default: 2x2x1 chips, or up to eight where hosts are large.
MeshShape usual_host(const MeshShape& mesh, bool has_large_hosts);

}  // namespace lockstep::tpu

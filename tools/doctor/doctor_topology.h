#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/tpu/device_assignment.h"
#include "tools/print_result.h"

/// `lockstep doctor --topology`: the coordinates of a computation's replicas in the mesh of a TPU slice.
namespace lockstep::tools {

/// The options as they are given.
struct TopologyRequest {
  /// Sizes of a mesh ("4x4x2x2"), the type of a slice ("v3-32"), or "env".
  std::string topology{};
  std::string computation_shape{};
  std::string computation_stride{};
  /// Not given: as many as fit.
  std::optional<int> num_replicas{};
  std::string device_order = "auto";
  std::string chips_per_host{};
  /// Hosts that are missing; later ones are renumbered.
  std::vector<int> missing_hosts{};
};

/// The result of a request.
struct TopologyAnswer {
  tpu::DeviceAssignment assignment;
  /// The sources of the topology, for "env".
  std::vector<ClusterFact> facts{};
};

/// Makes the assignment. Throws `c10::ValueError` and `ContextError` that say what was given and what is allowed.
TopologyAnswer examine_topology(const TopologyRequest& request, const Environment& variables = {});

/// Draws the mesh, a grid for each layer z with x to the right and y down: each chip has a cell with its cores, each
/// core its replica and logical device ("3.1"), "." where it is not used and "x" where it is missing. Lines are borders
/// of hosts.
std::string draw(const tpu::DeviceAssignment& assignment);

/// Prints drawing and table for people.
void print_topology(const TopologyAnswer& answer, std::ostream& out);

Json to_json(const TopologyAnswer& answer);

}  // namespace lockstep::tools

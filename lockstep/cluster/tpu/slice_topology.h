#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/tpu/topology.h"

/// Topologies of slices by name, by sizes, or as the environment describes them.
namespace lockstep::tpu {

/// Reads sizes that are separated by "x" or ",": "4x4x2", "1,1,1,2". Throws `c10::ValueError` that names `name` where
/// there is anything else, or a size below 1.
LOCKSTEP_API std::vector<int> parse_sizes(const std::string& name, std::string_view text);

/// Makes a topology of a text: the name of a slice ("v3-32", "v5litepod-8"), or the sizes of its mesh ("4x4x2x2"),
/// where z and the cores of a chip may be left out and are then 1. Without `chips_per_host`, hosts are those of such
/// slices. Throws `c10::ValueError` that says what is allowed.
LOCKSTEP_API Topology topology_from_text(std::string_view text, const std::vector<int>& chips_per_host = {});

struct LOCKSTEP_API EnvironmentTopology {
  Topology topology;
  /// The values that were read, with their sources.
  std::vector<ClusterFact> facts{};
};

/// Returns the slice that the environment of a TPU VM, or of a pod of Kubernetes with TPUs, describes:
///   - chips: TPU_PROCESS_BOUNDS times TPU_CHIPS_PER_PROCESS_BOUNDS (each also by its older names), else TPU_TOPOLOGY,
///     else those of the type in TPU_ACCELERATOR_TYPE or ACCELERATOR_TYPE;
///   - cores of a chip: those of the type, else 1;
///   - tasks: one for each process of TPU_PROCESS_BOUNDS; else one for each worker in TPU_PROCESS_ADDRESSES or
///     TPU_WORKER_HOSTNAMES; else the hosts of such slices.
///
/// Throws `ContextError` where the variables are missing, `c10::ValueError` where they are invalid or contradictory.
LOCKSTEP_API EnvironmentTopology topology_from_environment(const Environment& variables = {});

}  // namespace lockstep::tpu

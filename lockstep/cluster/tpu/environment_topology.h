#pragma once

#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/tpu/topology.h"

namespace lockstep::tpu {

struct LOCKSTEP_API EnvironmentTopology {
  Topology topology;
  /// What was read where.
  std::vector<ClusterFact> facts{};
};

/// Returns the slice that the environment of a TPU VM, or of a pod of Kubernetes with TPUs, describes:
///   - chips: TPU_PROCESS_BOUNDS times TPU_CHIPS_PER_PROCESS_BOUNDS (each also by its older names), else TPU_TOPOLOGY,
///     else those of the type in TPU_ACCELERATOR_TYPE or ACCELERATOR_TYPE;
///   - cores of a chip: those of the type, else 1;
///   - tasks: one for each process of TPU_PROCESS_BOUNDS; else one for each worker in TPU_PROCESS_ADDRESSES or
///     TPU_WORKER_HOSTNAMES; else hosts as such slices have them.
///
/// Throws `ContextError` where nothing is described, `c10::ValueError` where variables are wrong or contradict each
/// other.
LOCKSTEP_API EnvironmentTopology topology_from_environment(const Environment& variables = {});

}  // namespace lockstep::tpu

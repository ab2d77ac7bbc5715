#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/environment.h"

namespace lockstep {

/// One description of a cluster that was looked for.
struct LOCKSTEP_API ClusterCandidate {
  /// For example "TF_CONFIG" or "torchrun".
  std::string name{};
  bool is_chosen = false;
  /// Why, or why not: "WORLD_SIZE is not set".
  std::string reason{};
};

/// What was looked for, and what was found.
struct LOCKSTEP_API ClusterChoice {
  std::shared_ptr<ClusterResolver> resolver{};
  /// In the order of looking; what comes after the chosen one was not looked for.
  std::vector<ClusterCandidate> candidates{};
};

/// Finds the description of a cluster that the environment holds: TF_CONFIG, which always wins, then the variables of
/// torchrun, Open MPI's mpirun, a step of Slurm, other MPI launchers, an indexed Job of Kubernetes, and SageMaker.
/// Launchers count from two tasks on: one alone needs nobody. Where nothing is found, the resolver has no cluster.
///
/// Throws what the resolver throws where a description is found and wrong.
LOCKSTEP_API ClusterChoice choose_cluster(const Environment& variables = {});

/// Returns the resolver of `choose_cluster`.
LOCKSTEP_API std::shared_ptr<ClusterResolver> resolve_cluster(const Environment& variables = {});

}  // namespace lockstep

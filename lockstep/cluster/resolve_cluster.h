#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/environment.h"

namespace lockstep {

/// A kind of cluster description that was looked for.
struct LOCKSTEP_API ClusterCandidate {
  /// For example "TF_CONFIG" or "torchrun".
  std::string name{};
  bool is_chosen = false;
  /// Why, or why not: "WORLD_SIZE is not set".
  std::string reason{};
};

/// The chosen resolver, and all candidates.
struct LOCKSTEP_API ClusterChoice {
  std::shared_ptr<ClusterResolver> resolver{};
  /// In order of precedence; candidates after the chosen one were not examined.
  std::vector<ClusterCandidate> candidates{};
};

/// Chooses the resolver by the environment: TF_CONFIG, which has precedence, then the variables of torchrun, Open MPI's
/// mpirun, a Slurm step, other MPI launchers, an indexed Job of Kubernetes, and SageMaker. A launcher with a single
/// task is ignored. Where nothing is found, the resolver has no cluster.
///
/// Throws as the chosen resolver does where its description is invalid.
LOCKSTEP_API ClusterChoice choose_cluster(const Environment& variables = {});

/// Returns the resolver of `choose_cluster`.
LOCKSTEP_API std::shared_ptr<ClusterResolver> resolve_cluster(const Environment& variables = {});

}  // namespace lockstep

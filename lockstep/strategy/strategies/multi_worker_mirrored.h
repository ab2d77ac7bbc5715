#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/comm/diagnostics/worker_error.h"
#include "lockstep/comm/options.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

/// Synchronous training on several workers, each a process with one or more devices: every replica of every worker has
/// a copy of all variables, and all copies stay equal.
///
/// ```
/// MultiWorkerMirroredStrategy strategy;      // the cluster is in TF_CONFIG, or the launcher's variables
/// auto scope = strategy.scope();
/// ...                                        // the same program as under MirroredStrategy, on every worker
/// ```
///
/// Every worker runs the same program: it makes the same strategies, variables, runs and collectives in the same order.
/// Variables and modules start with the values of the first worker. Without a cluster it is a strategy of this process
/// alone. The constructor waits for all workers (LOCKSTEP_JOIN_TIMEOUT).
///
/// All workers throw a WorkerError if a worker dies, stops, is unreachable, exceeds a timeout or makes another call
/// than the others. An exception that leaves `run` on one worker ends the job on all. A new strategy then joins a new
/// job.
class LOCKSTEP_API MultiWorkerMirroredStrategy : public Strategy {
 public:
  /// Without a resolver the cluster is found in the environment (resolve_cluster). The default devices are all GPUs of
  /// this process, or one CPU. `devices` names others; every worker must have equally many.
  explicit MultiWorkerMirroredStrategy(std::shared_ptr<ClusterResolver> cluster_resolver = nullptr,
                                       const CommunicationOptions& communication_options = {},
                                       const std::vector<std::string>& devices = {});
  /// The constructor of TensorFlow's earlier versions.
  explicit MultiWorkerMirroredStrategy(CollectiveCommunication communication,
                                       std::shared_ptr<ClusterResolver> cluster_resolver = nullptr)
      : MultiWorkerMirroredStrategy(std::move(cluster_resolver),
                                    CommunicationOptions{.implementation = communication}) {}

  /// The engine that carries collectives between workers ("shm", "gloo", "mpi", "nccl" or "local"), and why.
  std::string engine() const;
  std::string engine_reason() const;
};

}  // namespace lockstep

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/worker_error.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

/// Synchronous training on several workers, each a process with one or more devices: every replica of every worker has
/// a copy of all variables, and they are kept equal.
///
/// ```
/// MultiWorkerMirroredStrategy strategy;      // the cluster is in TF_CONFIG, or the launcher's variables
/// auto scope = strategy.scope();
/// ...                                        // the same program as under MirroredStrategy, on every worker
/// ```
///
/// Every worker runs the same program: it makes the same strategies, variables, runs and collectives in the same order.
/// Variables and modules start with the values of the first worker. Where there is no cluster it is a strategy of this
/// process alone. The constructor waits for all workers (LOCKSTEP_JOIN_TIMEOUT).
///
/// A worker that dies, stops, is cut off or is too late, and one that calls something else than the others, is a
/// WorkerError on all of them; an exception that leaves `run` on one worker ends the job on all. After that a new
/// strategy joins anew.
class LOCKSTEP_API MultiWorkerMirroredStrategy : public Strategy {
 public:
  /// Without a resolver the cluster is looked for in the environment (resolve_cluster). The devices are all GPUs of
  /// this process, else one CPU; `devices` names others, as many on every worker.
  explicit MultiWorkerMirroredStrategy(std::shared_ptr<ClusterResolver> cluster_resolver = nullptr,
                                       const CommunicationOptions& communication_options = {},
                                       const std::vector<std::string>& devices = {});
  /// As TensorFlow's earlier versions have it.
  explicit MultiWorkerMirroredStrategy(CollectiveCommunication communication,
                                       std::shared_ptr<ClusterResolver> cluster_resolver = nullptr)
      : MultiWorkerMirroredStrategy(std::move(cluster_resolver),
                                    CommunicationOptions{.implementation = communication}) {}

  /// What carries collectives between workers, and why: "shm", "gloo", "mpi", "nccl", or "local".
  std::string engine() const;
  std::string engine_reason() const;
};

}  // namespace lockstep

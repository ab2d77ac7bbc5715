#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/worker_groups.h"

namespace lockstep {

class ClusterResolver;

namespace comm {
class SharedMemory;
class SharedRendezvous;
}  // namespace comm

namespace detail {

/// Inside: the workers of a cluster, as a strategy of this process deals with them.
///
/// All strategies of a process share one job, which is joined by the first; after a failure the next strategy joins
/// anew, with whoever comes. Every worker makes the same strategies in the same order.
class LOCKSTEP_API Workers {
 public:
  /// Joins the cluster that the resolver describes, with `replicas_per_worker` replicas here, on these GPUs or, without
  /// any, on CPUs, and agrees with the others on the engine that carries collectives. Errors name what was tried and
  /// who has not come.
  static std::shared_ptr<Workers> join(const ClusterResolver& resolver, int replicas_per_worker, std::vector<int> gpus,
                                       const CommunicationOptions& options);
  ~Workers();

  int index() const { return job_->worker(); }
  int count() const { return job_->num_workers(); }
  /// How many of them, this one included, run on cores that this process runs on.
  int sharing_cores() const { return sharing_cores_; }
  comm::Job& job() const { return *job_; }

  /// The engine, and why it was chosen: "shm", "all 2 workers are on this machine and share memory".
  const std::string& engine() const { return engine_; }
  const std::string& reason() const { return reason_; }
  bool shares_memory() const { return memory_ != nullptr; }

  /// Makes a group over all workers, with so many ranks of each. All workers do so, in the same order.
  std::shared_ptr<comm::WorkerGroups> make_groups(const std::string& purpose, int ranks_per_worker);

  /// Tells all workers that this one cannot go on: an exception leaves a run here, and others may be waiting in a
  /// collective of it.
  void tell(const std::exception_ptr& error);
  /// Writes the last collectives of this process to a file, and says so in the log.
  void write_down() const;

 private:
  Workers() = default;
  /// Waits until all workers have read what was gathered; for those who are about to throw.
  void wait_for_readers(const std::string& what);
  void choose_engine(const CommunicationOptions& options);
  bool all_have(const std::string& engine, const std::string& own_reason, std::string& why_not);
  bool share_cards();

  std::shared_ptr<comm::Job> job_;
  /// What the names of this strategy's groups begin with.
  std::string name_;
  std::string engine_;
  /// The engine for the memory of hosts, where messages are sent.
  std::string host_engine_;
  std::string reason_;
  int sharing_cores_ = 1;
  std::chrono::milliseconds timeout_{};
  std::vector<int> devices_;
  std::shared_ptr<comm::SharedMemory> memory_;
};

}  // namespace detail
}  // namespace lockstep

#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/comm/diagnostics/wait_monitor.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/job_engine.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/worker_groups.h"

namespace lockstep {

class ClusterResolver;

namespace detail {

/// Internal: the secret of the job that the environment gives; empty: there is none.
LOCKSTEP_API std::string job_token();

/// Internal: where worker 0 keeps what all workers of the job write to their traces (TraceWorker::job).
constexpr const char* kTraceJobKey = "trace/job";

/// Internal: the workers of a cluster, as seen by a strategy of this process.
///
/// All strategies of a process share one job. The first strategy joins it; after a failure, the next strategy joins a
/// new job. Every worker makes the same strategies in the same order.
class LOCKSTEP_API Workers {
 public:
  /// Joins the cluster that the resolver describes and agrees with the other workers on the engine of collectives.
  /// This process has `replicas_per_worker` replicas, on `gpus` or, if empty, on CPUs. Errors name the addresses that
  /// were tried and the workers that are missing.
  static std::shared_ptr<Workers> join(const ClusterResolver& resolver, int replicas_per_worker, std::vector<int> gpus,
                                       const CommunicationOptions& options);
  ~Workers();

  /// The failure of the job that this process has joined last; nothing where it has not failed, and where the last
  /// attempt to join one was in vain.
  static std::optional<comm::JobFailure> last_failure();
  /// Leaves the job that this process has joined last, as soon as no strategy uses it.
  static void leave_job();

  int index() const { return job_->worker(); }
  int count() const { return job_->num_workers(); }
  /// Returns the number of workers, this one included, that run on the cores of this process.
  int sharing_cores() const { return sharing_cores_; }
  comm::Job& job() const { return *job_; }

  /// What the names of this strategy's groups and values begin with.
  const std::string& name() const { return name_; }
  /// The engine and the reason for its choice: "shm", "all 2 workers are on this machine and share memory".
  const std::string& engine() const { return engine_->name(); }
  const std::string& reason() const { return engine_->reason(); }
  bool shares_memory() const { return engine_->shares_memory(); }

  /// Ends the job when workers wait for each other in different collectives.
  comm::WaitMonitor& monitor() const { return *monitor_; }

  /// Makes a group over all workers. A collective call: all workers make the same groups in the same order.
  std::shared_ptr<comm::WorkerGroups> make_groups(const std::string& purpose, int ranks_per_worker) {
    return engine_->make_groups(purpose, ranks_per_worker);
  }

  /// Reports to all workers that an exception left a run here, so that none waits for this worker in a collective.
  void report_failure(const std::exception_ptr& error);
  /// Writes the last collectives of this process to a file and logs its name.
  void dump() const;

 private:
  Workers() = default;
  /// Waits until all workers have read what was gathered; for those who are about to throw.
  void wait_for_readers(const std::string& what);

  std::shared_ptr<comm::Job> job_;
  std::string name_;
  int sharing_cores_ = 1;
  std::chrono::milliseconds timeout_{};
  std::unique_ptr<comm::JobEngine> engine_;
  std::shared_ptr<comm::WaitMonitor> monitor_;
};

}  // namespace detail
}  // namespace lockstep

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/job/job_options.h"

/// A job: the processes that train together. They find each other, authenticate, and monitor each other.
namespace lockstep::comm {

/// Why a job cannot go on.
struct LOCKSTEP_API JobFailure {
  enum class Kind {
    /// The connection broke: the process died.
    Died,
    /// Its heartbeats stopped: the process is stopped, or cut off the network.
    Silent,
    /// It reported its own failure.
    Failed,
    /// Workers wait for each other in calls that do not match.
    Mismatch,
  };
  Kind kind = Kind::Failed;
  /// The worker that is the cause, or -1 for a mismatch.
  int worker = -1;
  /// One sentence: "worker 1 (10.0.0.2:8888) died: its connection was closed".
  std::string reason;
};

/// The membership of this process in a job.
///
///     auto job = join_job({.addresses = {"10.0.0.1:8888", "10.0.0.2:8888"}, .worker = 1, .token = token});
///     job->set("shm/1", offer);
///     std::string theirs = job->get("shm/0", 30s);
///
/// Worker 0 stores the values and listens at its address; all others keep a connection to it, over which they send
/// heartbeats. When a member dies, falls silent or fails, all others learn it at once. A member that is destroyed
/// leaves the job, which is no failure. Thread-safe.
class LOCKSTEP_API Job {
 public:
  virtual ~Job() = default;

  virtual int worker() const = 0;
  virtual int num_workers() const = 0;
  /// How messages name a worker: `worker 1 (10.0.0.2:8888)`.
  virtual const std::string& name(int worker) const = 0;
  /// The address of this process's interface that routes to the coordinator: what data sockets are bound to.
  virtual const std::string& local_address() const = 0;
  /// Whether all workers run on one machine, under one kernel (the same boot).
  virtual bool one_machine() const = 0;

  /// Sets a value that all members can get. A key is set once, unless it is dropped.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Removes a value, so that it takes no memory of worker 0 any more. Nothing happens where there is none. The caller
  /// knows that no member will get it. Does not wait.
  virtual void drop(const std::string& key) = 0;
  /// Returns a value as soon as a member has set it. CollectiveError at the deadline, or when the job has failed; it
  /// names the key and, where the key ends in a worker's number, the worker that has not set it.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Sets a value of this member, and returns those of all members in their order.
  std::vector<std::string> all_gather(const std::string& key, const std::string& value,
                                      std::chrono::milliseconds timeout);

  /// The first failure that this member knows of; null while there is none. Costs one load.
  virtual const JobFailure* failure() const = 0;
  /// Whether `worker` has left the job. Costs one load.
  virtual bool has_left(int worker) const = 0;
  /// Fails the job on all members because this one cannot go on. The first call counts.
  virtual void fail(const std::string& reason) = 0;
  /// Fails the job on all members because their calls do not match; `reason` names them. The first failure counts.
  virtual void fail_by_mismatch(const std::string& reason) = 0;

  /// Sends a report of this member to all members. It replaces the one before. Does not wait.
  virtual void report(const std::string& report) = 0;
  /// The last report of a member that has arrived; empty where there is none.
  virtual std::string last_report(int worker) const = 0;
  /// Calls `callback`, on a thread of the job, when the job fails and whenever a member leaves; also now where one of
  /// these has happened already. Returns a handle; after it is destroyed the callback does not run.
  virtual std::shared_ptr<void> on_change(std::function<void()> callback) = 0;
};

}  // namespace lockstep::comm

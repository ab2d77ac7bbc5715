#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// How processes become a job: they find each other, prove that they belong, and watch over each other.
namespace lockstep::comm {

/// What a process must know to join.
struct LOCKSTEP_API JobOptions {
  /// `host:port` of every worker, by number; the first one coordinates and listens there.
  std::vector<std::string> addresses;
  /// How messages name each worker, for example "worker 1"; empty: by number.
  std::vector<std::string> names{};
  /// Which of them this process is.
  int worker = 0;
  /// Secret of the job: who cannot prove that it knows it is turned away. Never sent. Empty: anybody may join.
  std::string token{};
  /// Addresses to bind and announce in place of the interface that routes to the coordinator; empty: that one.
  std::string interface_address{};
  /// How long to wait until all workers have come.
  std::chrono::milliseconds join_timeout{300'000};
  /// How often members show that they live, and how long one may be silent before it counts as lost.
  std::chrono::milliseconds heartbeat_interval{1'000};
  std::chrono::milliseconds heartbeat_timeout{10'000};
};

/// Why a job cannot go on.
struct LOCKSTEP_API JobFailure {
  enum class Kind {
    /// The connection broke: the process died.
    kDied,
    /// It was silent for too long: it is stopped, or cut off the network.
    kSilent,
    /// It said itself that it failed.
    kFailed,
  };
  Kind kind = Kind::kFailed;
  /// The worker that is the cause.
  int worker = -1;
  /// One sentence: "worker 1 (10.0.0.2:8888) died: its connection was closed".
  std::string reason;
};

/// The membership of this process in a job.
///
///     auto job = Job::join({.addresses = {"10.0.0.1:8888", "10.0.0.2:8888"}, .worker = 1, .token = token});
///     job->set("shm/1", offer);
///     std::string theirs = job->get("shm/0", 30s);
///
/// Worker 0 keeps the values and listens at its address; all others keep a connection to it, over which each shows that
/// it lives. When a member dies, falls silent or fails, all others learn it at once. A member that is destroyed says
/// good-bye, which is no failure. Thread-safe.
class LOCKSTEP_API Job {
 public:
  /// Returns when all workers have come. CollectiveError names the address that was tried, what failed, who has come
  /// and who has not; c10::ValueError names what is wrong with the options (a loopback address among several hosts).
  static std::shared_ptr<Job> join(const JobOptions& options);
  virtual ~Job() = default;

  virtual int worker() const = 0;
  virtual int num_workers() const = 0;
  /// How messages name a worker: `worker 1 (10.0.0.2:8888)`.
  virtual const std::string& name(int worker) const = 0;
  /// The address of this process's interface that routes to the coordinator: what data sockets are bound to.
  virtual const std::string& local_address() const = 0;
  /// Whether all workers run on one machine, under one kernel (the same boot).
  virtual bool one_machine() const = 0;

  /// Leaves a value for all members. A key is set once.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns a value as soon as somebody has set it. CollectiveError at the deadline, or when the job has failed; it
  /// names the key and who has not set it where the key ends in a worker's number.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Leaves a value, and returns those of all members in their order.
  std::vector<std::string> all_gather(const std::string& key, const std::string& value,
                                      std::chrono::milliseconds timeout);

  /// The first failure that this member knows of; nothing while all is well. Costs one load while it is.
  virtual const JobFailure* failure() const = 0;
  /// Whether `worker` has said good-bye. Costs one load.
  virtual bool has_left(int worker) const = 0;
  /// Tells all members that this one cannot go on. The first call counts.
  virtual void fail(const std::string& reason) = 0;
  /// Calls `callback` on a thread of the job's when it fails and whenever a member leaves; once at once where something
  /// of that has happened already. Returns a handle; the callback is not called, and does not run, after the handle is
  /// gone.
  virtual std::shared_ptr<void> on_change(std::function<void()> callback) = 0;
};

}  // namespace lockstep::comm

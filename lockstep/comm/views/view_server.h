#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/views/membership.h"

namespace lockstep::comm::views {

struct ViewServerOptions {
  /// host:port to listen at.
  std::string address;
  /// Secret of the job: who cannot prove that it knows it is turned away. Empty: any process may connect.
  std::string token{};
  MembershipOptions membership{};
  /// How long another launcher may be silent before its workers count as ended.
  std::chrono::milliseconds launcher_timeout{10'000};
  /// How long a worker may be silent before it is overdue: it is stopped, or cut off the network.
  std::chrono::milliseconds worker_timeout{10'000};
};

/// What happened, for the launcher.
struct ViewEvent {
  enum class Kind {
    /// `view` was issued.
    Issued,
    /// `worker` asks for the next view because of `text`, a failure, after `step`.
    Failed,
    /// `worker` goes on after `step`, whose state came from `text`.
    Resumed,
    /// `worker` must be killed: it does not ask in time, or is silent.
    Overdue,
    /// A launcher has joined, or offers another number of places: `number`, of the machine `text`.
    Offered,
    /// A worker of a launcher that has joined has ended with the wait status `number`, after `step`.
    Exited,
    /// A launcher that had joined is gone because of `text`; its workers have ended.
    LauncherLost,
    /// The workers of the launcher have reached `step`.
    Progress,
  };

  Kind kind = Kind::Issued;
  uint64_t worker = 0;
  /// The launcher that it is about, from 1 on.
  uint64_t launcher = 0;
  uint64_t number = 0;
  int64_t step = -1;
  std::string text{};
  View view{};
};

/// Issues the views of an elastic job to workers that are connected, by the rules of Membership. It belongs to the
/// launcher and has no thread: `wait` does its work. Not thread-safe.
class LOCKSTEP_API ViewServer {
 public:
  /// Listens. CollectiveError says why it cannot.
  explicit ViewServer(const ViewServerOptions& options);
  ~ViewServer();

  /// A worker is about to be started, by a launcher that has joined or, 0, by this one; returns its number. The workers
  /// of a launcher share memory that survives them.
  uint64_t add_worker(uint64_t launcher = 0);
  /// A worker has ended. Members of its view learn `what_happened`.
  void end_worker(uint64_t worker, bool finished, const std::string& what_happened);
  /// From now on a view may have fewer workers than at least.
  void allow_fewer();
  /// No view is issued any more; those who ask learn the reason.
  void close(const std::string& reason);

  /// Starts a worker at a launcher that has joined, as the `start`-th of its place; `name` is for its output.
  void start_at(uint64_t launcher, uint64_t worker, int start, const std::string& name);
  void signal_at(uint64_t launcher, uint64_t worker, int signal);
  /// Tells all launchers that have joined how the job has ended, and waits a while until they know.
  void finish(int status);

  /// Serves until `descriptor` can be read, something happened, or the time is over.
  void wait(int descriptor, std::chrono::milliseconds limit);
  /// Returns what happened since the last call.
  std::vector<ViewEvent> take_events();

  const Membership& membership() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm::views

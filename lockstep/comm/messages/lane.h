#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/transport.h"

namespace lockstep::comm {

/// What the ranks of one worker share.
struct MessageTeam {
  std::shared_ptr<Job> job;
  std::shared_ptr<Transport> transport;
  /// Moves the memory of devices, where there is such an engine.
  std::shared_ptr<Transport> device_transport;
  std::string name;
  int ranks_per_worker = 1;
  std::chrono::milliseconds timeout{};
  uint64_t run = 0;

  int worker() const { return job->worker(); }
  int num_workers() const { return job->num_workers(); }
  int num_ranks() const { return num_workers() * ranks_per_worker; }
  int rank_of(int worker, int local) const { return worker * ranks_per_worker + local; }
};

/// One local rank's channel to the ranks of the same number in the other workers.
class LOCKSTEP_API Lane {
 public:
  Lane(std::shared_ptr<MessageTeam> team, int local);

  const MessageTeam& team() const { return *team_; }
  int local() const { return local_; }
  int rank() const { return team_->rank_of(team_->worker(), local_); }

  /// Begins a call: tells all workers what it is, and compares. WorkerError where they differ.
  void begin(const Call& call, const CommunicationOptions& options);
  /// Exchanges messages of the call. Whatever goes wrong becomes a WorkerError that names the worker.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming);
  /// The same with messages in the memory of the rank's device; all work on them is done.
  void exchange_on_devices(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming);

 private:
  void exchange_by(Transport& transport, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming);
  [[noreturn]] void rethrow_as_worker_error(const c10::Error& error) const;

  std::shared_ptr<MessageTeam> team_;
  int local_;
  uint64_t calls_ = 0;
  const Call* call_ = nullptr;
  std::chrono::milliseconds limit_{};
};

}  // namespace lockstep::comm

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/transport/transport.h"

namespace lockstep::comm {

/// What the ranks of one worker share.
struct MessageTeam {
  std::shared_ptr<Job> job;
  std::shared_ptr<Transport> transport;
  /// For messages in the memory of devices; null where no engine can send them.
  std::shared_ptr<Transport> device_transport;
  std::string name;
  int ranks_per_worker = 1;
  std::chrono::milliseconds timeout{};
  uint64_t run = 0;
  std::shared_ptr<std::atomic<uint64_t>> bytes_sent = std::make_shared<std::atomic<uint64_t>>(0);

  int worker() const { return job->worker(); }
  int num_workers() const { return job->num_workers(); }
  int num_ranks() const { return num_workers() * ranks_per_worker; }
  int rank_of(int worker, int local) const { return worker * ranks_per_worker + local; }
};

/// Exchanges messages between one local rank and the ranks of the same local number in the other workers, on the
/// transport's lane of that number.
class LOCKSTEP_API PeerExchange {
 public:
  PeerExchange(std::shared_ptr<MessageTeam> team, int local);

  const MessageTeam& team() const { return *team_; }
  int local() const { return local_; }
  int rank() const { return team_->rank_of(team_->worker(), local_); }

  /// Begins a call: exchanges its description with all workers. WorkerError where calls differ.
  void begin(const CollectiveCall& call, const CommunicationOptions& options);
  /// Exchanges messages of the call. Every failure is a WorkerError that names the worker.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming);
  /// Exchanges messages in the memory of the rank's device, whose pending work on them is complete.
  void exchange_on_devices(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming);

 private:
  void exchange_by(Transport& transport, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming);
  [[noreturn]] void rethrow_as_worker_error(const c10::Error& error) const;

  std::shared_ptr<MessageTeam> team_;
  int local_;
  uint64_t calls_ = 0;
  const CollectiveCall* call_ = nullptr;
  std::chrono::milliseconds limit_{};
};

}  // namespace lockstep::comm

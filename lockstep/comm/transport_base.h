#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/transport.h"

namespace lockstep::comm {

/// What the transports of all engines share: who is who, being aborted, and the words of errors.
class LOCKSTEP_API TransportBase : public Transport {
 public:
  std::string_view name() const final { return engine_; }
  int worker() const final { return worker_; }
  int num_workers() const final { return static_cast<int>(names_.size()); }
  int num_lanes() const final { return num_lanes_; }

  void exchange(int lane, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                std::chrono::milliseconds timeout) final;
  void abort(const std::string& reason) final;

 protected:
  using Clock = std::chrono::steady_clock;

  /// One exchange, and what is to be known of it when it fails.
  struct Call {
    int lane;
    std::span<const Outgoing> outgoing;
    std::span<const Incoming> incoming;
    std::chrono::milliseconds timeout;
    Clock::time_point deadline;

    bool is_late() const { return Clock::now() >= deadline; }
  };

  /// `engine` lives as long as the program. Keeps nothing of the job.
  TransportBase(const Job& job, std::string_view engine, int num_lanes);

  virtual void do_exchange(const Call& call) = 0;
  /// Wakes up whoever waits, which then finds that `is_aborted`. Called once.
  virtual void do_abort() = 0;

  bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }
  const std::string& name_of(int worker) const { return names_[worker]; }
  /// The names of those workers, `a, b`.
  std::string names_of(const std::vector<bool>& peers) const;

  /// Aborts the transport with what is also thrown; `words` are the engine's own. `peers` names who is late or broken;
  /// empty where the engine cannot tell.
  [[noreturn]] void fail_late(const Call& call, const std::string& peers, const std::string& words);
  [[noreturn]] void fail_with_peer(const Call& call, const std::string& peers, const std::string& words);
  [[noreturn]] void throw_aborted(const Call& call);

 private:
  std::string peers_of(const Call& call) const;

  std::string_view engine_;
  int worker_;
  int num_lanes_;
  std::vector<std::string> names_;
  std::atomic<bool> aborted_{false};
  std::mutex reason_mutex_;
  std::string reason_;
};

}  // namespace lockstep::comm

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
#include "lockstep/comm/transport/transport.h"

namespace lockstep::comm {

/// What the transports of all engines share: names of workers, abort, and error messages.
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

  /// One exchange, with what error messages need.
  struct Exchange {
    int lane;
    std::span<const Outgoing> outgoing;
    std::span<const Incoming> incoming;
    std::chrono::milliseconds timeout;
    Clock::time_point deadline;

    bool is_late() const { return Clock::now() >= deadline; }
  };

  /// `engine` lives as long as the program. The job is not stored.
  TransportBase(const Job& job, std::string_view engine, int num_lanes);

  virtual void do_exchange(const Exchange& exchange) = 0;
  /// Wakes up all threads that wait; they then see `is_aborted`. Called once.
  virtual void do_abort() = 0;

  bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }
  const std::string& name_of(int worker) const { return names_[worker]; }
  /// The names of those workers, `a, b`.
  std::string names_of(const std::vector<bool>& peers) const;

  /// Aborts the transport and throws with the same message, which includes the engine's message `words`. `peers` names
  /// the late or broken ones; empty where the engine cannot tell.
  [[noreturn]] void fail_late(const Exchange& exchange, const std::string& peers, const std::string& words);
  [[noreturn]] void fail_with_peer(const Exchange& exchange, const std::string& peers, const std::string& words);
  [[noreturn]] void throw_aborted(const Exchange& exchange);

 private:
  std::string peers_of(const Exchange& exchange) const;

  std::string_view engine_;
  int worker_;
  int num_lanes_;
  std::vector<std::string> names_;
  std::atomic<bool> aborted_{false};
  std::mutex reason_mutex_;
  std::string reason_;
};

}  // namespace lockstep::comm

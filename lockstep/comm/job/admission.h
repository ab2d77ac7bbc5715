#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/job/channel.h"
#include "lockstep/comm/job/handshake.h"
#include "lockstep/comm/job/job_options.h"

namespace lockstep::comm::job {

/// A peer that has proved that it knows the token. The coordinator decides whether its number is free.
struct Joiner {
  Channel channel;
  int worker = 0;
  std::string machine;
  Signer signer;
};

/// Listens at the coordinator's address and does its side of the handshake with pending peers, whose memory, time and
/// number are limited. Not thread-safe.
class Admission {
 public:
  /// Listens at the coordinator's address. CollectiveError says why it cannot.
  explicit Admission(const JobOptions& options);
  /// Listens for peers that are not in a job yet: their Hello has a number from 1 to `last_number`, and `num_workers`.
  Admission(const JobOptions& options, uint64_t num_workers, uint64_t last_number);

  /// The address that it listens at; empty in a job of one worker.
  const std::string& address() const { return address_; }
  /// Stops listening and closes the connections of pending peers.
  void close();

  void add_to(PollSet& set);
  /// Handles what is ready after a wait; returns the peers that have completed the handshake.
  std::vector<Joiner> serve(const PollSet& set);
  /// When `serve` must be called even if nothing was received.
  Clock::time_point next_deadline() const;

  /// Refuses a joiner and records it.
  void turn_away(Channel channel, const std::string& reason);
  size_t num_refused() const { return num_refused_; }
  /// Returns how many connections were refused, from where and why; empty for none.
  std::string refusals() const;

 private:
  struct PendingPeer {
    Channel channel;
    Clock::time_point deadline;
    size_t place = 0;
    // Empty until they were exchanged.
    std::string hello{};
    std::string challenge{};
    bool is_refused = false;
  };

  /// `who` listens, for messages.
  void listen(const JobOptions& options, const char* who);
  void accept_peers();
  // Returns false when the connection can be dropped.
  bool read(PendingPeer& peer, std::vector<Joiner>& joiners);
  void answer(PendingPeer& peer, const std::string& content, std::vector<Joiner>& joiners);
  void greet(PendingPeer& peer, const std::string& content);
  void verify(PendingPeer& peer, const std::string& content, std::vector<Joiner>& joiners);
  void refuse(PendingPeer& peer, const std::string& reason);
  void count_refusal(const std::string& address, const std::string& reason);

  std::string token_;
  uint64_t num_workers_;
  uint64_t last_number_;
  size_t max_pending_;
  Socket listener_;
  std::string address_;
  size_t listener_place_ = 0;
  Clock::time_point paused_until_{};
  std::list<PendingPeer> pending_;
  size_t num_refused_ = 0;
  std::map<std::string, size_t> refused_;
  Clock::time_point next_warning_{};
};

}  // namespace lockstep::comm::job

#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/job/channel.h"
#include "lockstep/comm/job/handshake.h"
#include "lockstep/comm/job/job.h"
#include "lockstep/comm/job/poll_set.h"

namespace lockstep::comm::job {

/// Somebody who has proved that it knows the token; the coordinator decides whether its place is free.
struct Joiner {
  Channel channel;
  int worker = 0;
  std::string machine;
  Signer signer;
};

/// The door of a job: listens, and holds the coordinator's side of the handshake with strangers. They get little
/// memory, little time, and are limited in number. Not thread-safe.
class Admission {
 public:
  /// Listens at the coordinator's address. CollectiveError says why that is not possible.
  explicit Admission(const JobOptions& options);

  /// The address that it listens at; empty in a job of one.
  const std::string& address() const { return address_; }
  /// Lets nobody in any more.
  void close();

  void add_to(PollSet& set);
  /// Does what can be done after a wait; returns who has come.
  std::vector<Joiner> serve(const PollSet& set);
  /// When `serve` must be called even if nobody has said anything.
  Clock::time_point next_deadline() const;

  /// Sends the joiner away and remembers that.
  void turn_away(Channel channel, const std::string& reason);
  size_t num_refused() const { return num_refused_; }
  /// Says how many connections were refused, from where and why; empty for none.
  std::string refusals() const;

 private:
  struct Stranger {
    Channel channel;
    Clock::time_point deadline;
    size_t place = 0;
    // Empty until it has been said.
    std::string hello{};
    std::string challenge{};
    bool is_refused = false;
  };

  void listen(const JobOptions& options);
  void accept_strangers();
  // Returns false when the stranger is done with.
  bool read(Stranger& stranger, std::vector<Joiner>& joiners);
  void answer(Stranger& stranger, const std::string& content, std::vector<Joiner>& joiners);
  void greet(Stranger& stranger, const std::string& content);
  void verify(Stranger& stranger, const std::string& content, std::vector<Joiner>& joiners);
  void refuse(Stranger& stranger, const std::string& reason);
  void count_refusal(const std::string& address, const std::string& reason);

  std::string token_;
  size_t num_workers_;
  Socket listener_;
  std::string address_;
  size_t listener_place_ = 0;
  Clock::time_point paused_until_{};
  std::list<Stranger> strangers_;
  size_t num_refused_ = 0;
  std::map<std::string, size_t> refused_;
  Clock::time_point next_warning_{};
};

}  // namespace lockstep::comm::job

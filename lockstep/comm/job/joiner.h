#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/comm/job/channel.h"
#include "lockstep/comm/job/coordinator.h"
#include "lockstep/comm/job/job_options.h"

namespace lockstep::comm::job {

/// A member's connection to the coordinator after the handshake.
struct Entrance {
  Channel channel;
  std::chrono::milliseconds heartbeat_interval{};
  std::chrono::milliseconds heartbeat_timeout{};
  /// The address for data sockets; empty for worker 0 where it is the address that it listens at.
  std::string local_address{};
  /// In worker 0's process; null in others.
  std::unique_ptr<Coordinator> coordinator{};
};

/// Starts the coordinator and connects worker 0's member with it.
Entrance enter_as_coordinator(const JobOptions& options);

/// Connects to the coordinator, retrying until the deadline. CollectiveError says why it failed. `last_error` is the
/// error of the last attempt, and is updated. `how_to_reach`: what to do where nobody answers, for that error.
Entrance enter_as_joiner(const JobOptions& options, Clock::time_point deadline, std::string& last_error,
                         const char* how_to_reach = "start worker 0 there, or correct addresses[0]");

/// Throws the error that a coordinator's TurnedAway message describes.
[[noreturn]] void throw_turned_away(const JobOptions& options, uint64_t refusal, const std::string& reason);

}  // namespace lockstep::comm::job

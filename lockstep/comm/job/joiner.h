#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/comm/job/channel.h"
#include "lockstep/comm/job/coordinator.h"
#include "lockstep/comm/job/job.h"

namespace lockstep::comm::job {

/// A member's way to the coordinator, after both have proved that they belong to the job.
struct Entrance {
  Channel channel;
  std::chrono::milliseconds heartbeat_interval{};
  std::chrono::milliseconds heartbeat_timeout{};
  /// What data sockets are to be bound to; empty for worker 0 where it is the address that it listens at.
  std::string local_address{};
  /// In worker 0's process.
  std::unique_ptr<Coordinator> coordinator{};
};

/// Starts the coordinator.
Entrance enter_as_coordinator(const JobOptions& options);

/// Connects to the coordinator, again and again until the deadline. CollectiveError says why that did not work.
/// `last_error` is what failed before, and is kept up to date.
Entrance enter_as_joiner(const JobOptions& options, Clock::time_point deadline, std::string& last_error);

/// Raises what a coordinator's kTurnedAway message says.
[[noreturn]] void throw_turned_away(const JobOptions& options, uint64_t refusal, const std::string& reason);

}  // namespace lockstep::comm::job

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"

/// Shared by the resolvers of launchers that assign ranks.
namespace lockstep::detail {

/// Reads a variable that must be set, to a whole number of at least `least`. Throws `c10::ValueError`, and
/// `ContextError` saying `outside` where it is not set.
int required_number(const Environment& environment, const std::string& name, const std::string& outside, int least = 0);

/// Reads a variable that may be missing. Throws `c10::ValueError` for anything but a whole number of at least `least`.
std::optional<int> optional_number(const Environment& environment, const std::string& name, int least = 0);

/// An address and the variable that gave it.
struct SourcedAddress {
  std::string address{};
  std::string source{};
};

/// Returns the "host:port" in LOCKSTEP_COORDINATOR, or nothing.
std::optional<SourcedAddress> given_coordinator(const Environment& environment);

/// Returns the parts between commas, empty parts included; nothing for an empty text.
std::vector<std::string> split_at_commas(const std::string& text);

/// Joins a host and a port; an IPv6 address gets brackets.
std::string host_and_port(const std::string& host, int port);

/// Returns a port that is the same for all tasks of the launch `job_id`, below Linux's ephemeral ports.
int port_of_job(const std::string& job_id);

/// The ranks that a launcher assigned.
struct RankedJob {
  std::string launcher{};
  int rank = 0;
  int size = 1;
  std::string rank_source{};
  std::string size_source{};
  std::optional<LocalTask> local_task{};
  std::string local_source{};
  SourcedAddress coordinator{};
};

/// Makes a cluster of workers of which only the address of the first is known.
Resolution resolution_of(const RankedJob& job);

}  // namespace lockstep::detail

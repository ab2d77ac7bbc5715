#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/diagnostics/straggler.h"

/// What the ranks of each worker wait for in collectives, and which of these waits cannot end.
namespace lockstep::comm {

/// A local rank of a group.
struct RankReport {
  /// The number of its last call in the group; 0 before the first one.
  uint64_t call = 0;
  /// Whether the call has not ended.
  bool waits = false;
  /// The last run that it has ended.
  uint64_t left_run = 0;
  /// Describes the call and where it was made. Empty unless it waits.
  std::string text{};

  bool operator==(const RankReport&) const = default;
};

struct GroupReport {
  std::string name;
  /// Whether all of its ranks are in this worker.
  bool is_local = false;
  /// The run that the calls belong to; 0 for calls outside of runs.
  uint64_t run = 0;
  std::vector<RankReport> ranks{};

  bool operator==(const GroupReport&) const = default;
};

/// A worker at one moment.
struct WaitReport {
  /// Whether every thread of the worker that makes collectives is in one.
  bool all_wait = false;
  std::vector<GroupReport> groups{};
  /// How much of the last window it was not waiting; nothing before the window has passed once.
  std::optional<Pace> pace{};

  bool operator==(const WaitReport&) const = default;
};

LOCKSTEP_API std::string encode(const WaitReport& report);
/// Nothing where the text is no report.
LOCKSTEP_API std::optional<WaitReport> decode_wait_report(std::string_view content);

/// Takes the last report of each worker, in their order, and their names. Returns a sentence that names two calls if
/// workers wait for each other in different collectives, or an empty text.
///
/// Reports may be from different moments. A set of workers never goes on if each of their waits is for a rank of the
/// set that has not arrived: the first rank to go on would need another one of the set to arrive before it. A worker
/// that computes, reads data or is in a collective in which all ranks have arrived is in no such set.
LOCKSTEP_API std::string find_mutual_wait(std::span<const std::optional<WaitReport>> reports,
                                          std::span<const std::string> names);

/// Returns a sentence if a rank of `worker` has ended the run in which another worker waits for it, or an empty text.
/// It also names what `worker` waits in.
LOCKSTEP_API std::string find_ended_run(std::span<const std::optional<WaitReport>> reports, int worker,
                                        std::span<const std::string> names);

}  // namespace lockstep::comm

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

/// The figures of a run that are computed from its files.
namespace lockstep::tools::reports {

/// The parts of a step that the report shows. `Other`: checkpoints, compiling, and time that no phase was counted for.
inline constexpr std::array<const char*, 6> kPartNames{"Input",  "Compute", "Communication",
                                                       "Update", "Waiting", "Other"};
using StepParts = std::array<double, kPartNames.size()>;

/// Divides the time of `steps` steps that took `seconds` into seconds per step of each part.
StepParts parts_of_step(const PhaseSeconds& phases, double seconds, int64_t steps);

/// Seconds per step in which a replica works itself: input, forward, backward, update.
double own_seconds(const ReplicaTotals& replica);

/// The replica whose own work takes longest.
struct SlowestReplica {
  int64_t worker = 0;
  int64_t replica = 0;
  std::string host;
  std::string device;
  double seconds = 0;
  /// The median of all replicas.
  double median = 0;
  /// The phase in which it takes most more than the median, and how much, in seconds per step.
  std::string phase;
  double more = 0;
  /// Its time is over the median by more than 5 %, and by more than 10 microseconds.
  bool is_straggler = false;
};

struct RunFacts {
  int64_t steps = 0;
  int64_t epochs = 0;
  /// The sum of the records, as in `lockstep runs`.
  double seconds = 0;
  std::optional<double> examples_per_second;
  std::optional<double> step_seconds;
  std::optional<StepParts> parts;
  int64_t workers = 0;
  int64_t replicas = 0;
  double peak_memory = 0;
  /// The last value of each number of metrics.jsonl, else of the loss of steps.jsonl.
  std::vector<std::pair<std::string, double>> last;
  /// The first step with a loss that is not finite.
  std::optional<int64_t> bad_step;
  std::optional<SlowestReplica> slowest;
  /// The slowest replica in words.
  std::string slowest_words;
};

RunFacts facts_of(const RunData& run);

/// The value of a run under a name, or nothing.
std::optional<double> last_value(const RunFacts& facts, const std::string& name);

/// The identity and configuration of a run as names and values: `strategy.replicas`, `2`.
std::vector<std::pair<std::string, std::string>> flat_identity(const RunData& run);

/// A setting that is not the same in all runs.
struct Difference {
  std::string name;
  /// One for each run; empty where it has none.
  std::vector<std::string> values;
};
std::vector<Difference> differences(const std::vector<RunData>& runs);

/// What a reader should know about the run: damage, values that are not finite, a state other than finished. `now`:
/// unix seconds.
std::vector<std::string> notes_of(const RunData& run, const RunFacts& facts, double now);

}  // namespace lockstep::tools::reports

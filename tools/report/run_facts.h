#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

/// The figures of a run that are computed from its files.
namespace lockstep::tools::reports {

/// The parts of a step that the report shows. `Other`: time that no phase was counted for.
inline constexpr std::array<const char*, 8> kPartNames{"Input",   "Compute",    "Communication", "Update",
                                                       "Waiting", "Checkpoint", "Compile",       "Other"};
enum class StepPart : size_t { Input, Compute, Communication, Update, Waiting, Checkpoint, Compile, Other };
using StepParts = std::array<double, kPartNames.size()>;

/// Divides the time of `steps` steps that took `seconds` into seconds per step of each part.
StepParts parts_of_step(const PhaseSeconds& phases, double seconds, int64_t steps);

/// Adds to `shown` the parts that must be shown for these numbers: all but checkpoints and compiling, and these where
/// they take over 1 % of the time.
void note_parts(const StepParts& parts, std::array<bool, kPartNames.size()>& shown);

/// Returns `parts` with those that are not shown added to `Other`.
StepParts merge_parts(StepParts parts, const std::array<bool, kPartNames.size()>& shown);

/// Seconds per step in which a replica works itself: input, forward, backward, update.
double own_seconds(const ReplicaTotals& replica);

/// The replica whose own work takes longest.
struct SlowestReplica {
  int64_t worker = 0;
  int64_t replica = 0;
  std::string host;
  std::string device;
  double seconds = 0;
  /// What it is compared with: the median of all replicas, of two the other one.
  double median = 0;
  /// The phase in which it takes most more than that, and how much, in seconds per step.
  std::string phase;
  double more = 0;
  /// Its time is longer by more than 5 % and 10 microseconds.
  bool is_longer = false;
  /// It is longer by 5 % in at least two thirds of the intervals, and in three.
  bool is_consistent = false;
  bool is_straggler = false;
  int64_t slow_intervals = 0;
  int64_t compared_intervals = 0;
};

/// The last value that a run has recorded under a name.
struct LastValue {
  std::string name;
  double value = 0;
  /// The epoch that recorded it, from 1; nothing where it is the last one.
  std::optional<int64_t> epoch;
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
  /// Bytes, 0 where unknown: of the process that uses most (CPUs), and the highest peak of a replica's allocator.
  double process_memory = 0;
  double peak_memory = 0;
  /// The last value of each number of metrics.jsonl, else of the loss of steps.jsonl.
  std::vector<LastValue> last;
  /// The first step with a loss that is not finite.
  std::optional<int64_t> bad_step;
  std::optional<SlowestReplica> slowest;
  /// The slowest replica in words.
  std::string slowest_words;
};

RunFacts facts_of(const RunData& run);

/// The value of a run under a name, or null.
const LastValue* last_value(const RunFacts& facts, const std::string& name);

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

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/print_result.h"

/// What `lockstep report` reads from the folder of a run: run.json, metrics.jsonl, steps.jsonl, collectives.jsonl.
namespace lockstep::tools::reports {

/// The phases of a step, under the names that steps.jsonl uses.
inline constexpr std::array<const char*, 8> kPhaseNames{"input",   "forward", "backward",   "communication",
                                                        "waiting", "update",  "checkpoint", "compile"};
enum class StepPhase : size_t { Input, Forward, Backward, Communication, Waiting, Update, Checkpoint, Compile };
using PhaseSeconds = std::array<double, kPhaseNames.size()>;
/// The phases in which a replica works itself; in the others it waits for something, or all of them do.
inline constexpr std::array kOwnPhases{StepPhase::Input, StepPhase::Forward, StepPhase::Backward, StepPhase::Update};
/// A replica is slow where its own work is so many times that of what it is compared with.
inline constexpr double kStragglerRatio = 1.05;

/// One line of metrics.jsonl.
struct EpochRecord {
  int64_t epoch = 0;
  int64_t step = 0;
  std::optional<double> time;
  double seconds = 0;
  double examples = 0;
  /// "loss", "val_loss", ..., in the order of the file; they may be NaN or infinite.
  std::vector<std::pair<std::string, double>> values;
};

/// One line of steps.jsonl; the numbers of single replicas are in ReplicaTotals.
struct StepInterval {
  int64_t step = 0;
  int64_t epoch = 0;
  std::optional<double> time;
  double seconds = 0;
  int64_t steps = 0;
  double examples = 0;
  std::optional<double> loss;
  std::optional<double> learning_rate;
  /// Mean of the replicas; nothing where the line has no seconds of phases.
  std::optional<PhaseSeconds> phases;
  /// Bytes. CPUs: the process that uses most. Other devices: the replica whose allocator had the highest peak.
  std::optional<double> process_memory;
  std::optional<double> peak_memory;
};

/// One replica, summed over all lines of steps.jsonl.
struct ReplicaTotals {
  int64_t worker = 0;
  int64_t replica = 0;
  std::string host;
  std::string device;
  PhaseSeconds phases{};
  /// Whether seconds of phases were recorded.
  bool has_phases = false;
  /// Seconds and steps of the intervals that name this replica.
  double seconds = 0;
  int64_t steps = 0;
  /// The highest peak of the allocator of its device; on CPUs 0, and the most that its process used.
  double peak_memory = 0;
  double process_memory = 0;
  /// Intervals with phases, and those of them in which it was slow: see `kStragglerRatio`.
  int64_t compared_intervals = 0;
  int64_t slow_intervals = 0;
};

/// One collective, with all ranks that the file names.
struct CollectiveCall {
  std::string group;
  int64_t sequence = 0;
  std::string text;
  std::string site;
  double bytes = 0;
  int64_t ranks = 0;
  /// Ranks that had not left the call when the file was written, and those for which it failed.
  int64_t waiting = 0;
  int64_t failed = 0;
  int64_t first_start_ns = 0;
  int64_t last_start_ns = 0;
  /// The longest time of a rank in the call.
  double seconds = 0;
};

struct RunData {
  std::string folder;
  std::string name;
  /// The object of run.json; empty where it cannot be used.
  Json identity = Json::object();
  /// "running", "finished", ..., "lost" where the process is gone; "unknown" without run.json.
  std::string state = "unknown";
  std::vector<EpochRecord> epochs;
  std::vector<StepInterval> intervals;
  /// By worker and replica.
  std::map<std::pair<int64_t, int64_t>, ReplicaTotals> replicas;
  /// In the order in which they began.
  std::vector<CollectiveCall> collectives;
  /// Why the collectives were written: the name of a signal, the text of an error.
  std::string collectives_reason;
  /// What is missing or damaged, one sentence each.
  std::vector<std::string> problems;
};

/// Reads a folder as far as possible; never throws for its contents.
RunData read_run(const std::string& folder);

/// What value `index` is compared with: of two the other one, else the median of all.
double reference_of(const std::vector<double>& values, size_t index);

/// Returns the number of a JSON value as a count (see `number_of`): a number that is not finite, negative or missing is
/// 0, and a larger one than a double counts exactly is that limit.
int64_t count_of(const Json& value);

/// Returns `text` with bytes that are not UTF-8, and control characters other than tab and newline, replaced.
std::string valid_text(const std::string& text);

}  // namespace lockstep::tools::reports

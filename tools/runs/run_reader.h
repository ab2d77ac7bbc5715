#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/print_result.h"

/// Run folders, which `callbacks::run_folder` writes.
namespace lockstep::tools {

struct RunRecord {
  std::string path = {};
  /// run.json.
  Json run = {};
  /// The lines of metrics.jsonl. A last line that is not complete, of a run that was killed or still writes, is left
  /// out.
  std::vector<Json> epochs = {};
  /// Of steps.jsonl: the last step, and the seconds of all lines.
  std::optional<int64_t> last_step = std::nullopt;
  double step_seconds = 0;
  /// That of run.json; "lost" where it says "running" and the process is gone. On another host nobody knows: then it is
  /// "running".
  std::string state = {};
};

/// Reads a folder. ValueError where it is no run folder, one of another format, or one whose run.json has values of
/// other types.
RunRecord read_run(const std::string& path);

/// The best value of a log of epochs, as a name and a value: the smallest "val_loss", or "loss"; the largest value of
/// the first log with "acc" in its name, those of validation first. Nothing where no epoch has one.
std::optional<std::pair<std::string, double>> best_loss(const RunRecord& record);
std::optional<std::pair<std::string, double>> best_accuracy(const RunRecord& record);

/// Seconds of training, those before a restore included.
double seconds_of_run(const RunRecord& record);

/// A whole number that is not negative; nothing for other values.
std::optional<int64_t> count_at(const Json& object, const char* name);

/// One object: name, state, strategy, replicas, epochs, steps, best values, seconds, folder.
Json summary_of_run(const RunRecord& record);

}  // namespace lockstep::tools

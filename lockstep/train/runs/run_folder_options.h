#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

namespace lockstep::callbacks {

struct RunFolderOptions {
  /// The name in tables and reports. Empty: that of the folder.
  std::string name = {};
  /// What the program was asked to do: the text of a JSON object, or names and values.
  std::variant<std::string, std::map<std::string, std::string>> configuration = std::string("{}");
  /// What the random numbers began with.
  std::optional<uint64_t> seed = std::nullopt;
  /// Whether event files for TensorBoard are written, too; see `tensorboard`. Nothing: where this build can, which
  /// needs protozero.
  std::optional<bool> tensorboard = std::nullopt;
  /// About so many seconds lie between two lines of steps.jsonl, and more in a long training: at least 1/2500 of its
  /// time so far. Each line costs a small collective of all workers and a read of the loss.
  double line_every = 1;
  /// Whether metrics.csv has the logs of metrics.jsonl, too; see `csv_log`.
  bool csv = true;
};

}  // namespace lockstep::callbacks

#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/train/runs/json_lines.h"

/// Internal: what steps.jsonl tells of the steps before a restore.
namespace lockstep::detail {

/// What a training does again.
struct RestoredAt {
  int64_t step = 0;
  int64_t epoch = 0;
  /// The steps of this epoch among them.
  int64_t step_in_epoch = 0;
};

struct EarlierSteps {
  /// Of all steps up to the restored one.
  double seconds = 0;
  /// Of those of its epoch. A line that also has other steps counts by its part of steps.
  double epoch_seconds = 0;
  double epoch_examples = 0;
  /// The line of steps that no kept line has. The part of the line that was written after the checkpoint; without it an
  /// estimate by the lines before. It has no loss, and the member "estimated".
  std::optional<RunJson> missing = std::nullopt;
};

/// Reads the file before lines of later steps are removed.
LOCKSTEP_API EarlierSteps earlier_steps(const JsonLines& steps, const RestoredAt& at);

}  // namespace lockstep::detail

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/state/state.h"

namespace lockstep {

/// Numbers by name: "loss", "accuracy", "val_loss", ...
using Logs = std::map<std::string, double>;

/// What `Trainer::fit` returns.
struct LOCKSTEP_API History {
  /// Why the training ended.
  enum class End {
    /// All epochs are done.
    Finished,
    /// A callback has called `Trainer::stop`.
    Stopped,
    /// Ctrl-C: SIGINT.
    Interrupted,
    /// SIGTERM.
    Preempted,
  };

  /// The logs of each epoch of `fit`, those before a restore included.
  std::vector<Logs> epochs = {};
  /// The number of updates of the trainer, those before a restore included.
  int64_t steps = 0;
  End end = End::Finished;
  /// What `Trainer::stop` was given.
  std::string reason = {};

  /// Returns a log of all epochs. ValueError where an epoch has none; it names what there is.
  std::vector<double> values(const std::string& name) const;
  /// What the program should return: 0, or 75 after SIGTERM (`CheckpointManager::kPreemptedStatus`), or 130 after
  /// Ctrl-C.
  int exit_status() const;

  State state() const;
  void load_state(const State& state);
};

/// Returns "finished", "stopped", "interrupted" or "preempted".
LOCKSTEP_API const char* to_string(History::End end);
/// Returns "accuracy 0.95, loss 0.1".
LOCKSTEP_API std::string to_string(const Logs& logs);

}  // namespace lockstep

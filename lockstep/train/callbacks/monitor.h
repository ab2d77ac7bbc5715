#pragma once

#include <optional>
#include <string>

#include "lockstep/state/state.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "lockstep/train/trainer/history.h"

/// Internal: the best value of a log.
namespace lockstep::callbacks {

class Monitor {
 public:
  explicit Monitor(const MonitorOptions& options);

  /// The value of this epoch. Nothing where a log of validation is missing, because the epoch had none. ValueError
  /// where another log is missing; it names what there is.
  std::optional<double> value(const Logs& logs) const;
  /// Whether a value is better than the best one; then it is the best one.
  bool improves(double value);
  const std::string& name() const { return options_.monitor; }
  bool larger_is_better() const { return larger_is_better_; }

  State state() const;
  void load_state(const State& state);

 private:
  MonitorOptions options_;
  bool larger_is_better_;
  std::optional<double> best_;
};

}  // namespace lockstep::callbacks

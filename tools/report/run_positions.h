#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

/// Where the records of a run are on the axes of its curves.
namespace lockstep::tools::reports {

/// What points are drawn over.
struct ChartPositions {
  /// Steps done, epochs done (with a fraction), seconds of training; equally many.
  std::vector<double> step;
  std::vector<double> epoch;
  std::vector<double> time;
};

/// A stretch without training that the axis of time leaves out.
struct TimeBreak {
  /// The training time at which it is.
  double at = 0;
  double seconds = 0;
};

class RunPositions {
 public:
  explicit RunPositions(const RunData& run);

  /// Adds a point. Without `epoch` it lies between the ends of epochs, by its step; `time`: unix seconds.
  void add(double step, std::optional<double> epoch, std::optional<double> time, ChartPositions& out) const;

  /// Adds the begin and the end of some intervals in a row. The begin is not before the last end.
  void add(const StepInterval& first, const StepInterval& last, ChartPositions& begin, ChartPositions& end) const;

  /// Long stretches without training: those over a minute, and not as usual as an evaluation after each epoch.
  std::vector<TimeBreak> breaks() const;

 private:
  double epoch_at(double step) const;
  double training_time(double time) const;
  void note_steps(const RunData& run);
  void note_times(const RunData& run);

  /// Steps and epochs done.
  std::vector<std::pair<double, double>> epochs_;
  /// Unix seconds and the seconds of training until then.
  std::vector<std::pair<double, double>> times_;
  std::vector<TimeBreak> gaps_;
  /// Nothing says how long records took: times are those since the first one.
  bool is_elapsed_ = false;
};

}  // namespace lockstep::tools::reports

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/run_data.h"

/// The curves of a report, reduced to what can be seen.
namespace lockstep::tools::reports {

/// What a point is drawn over.
struct ChartPositions {
  /// Steps done, epochs done (with a fraction), seconds since the first record of the run; equally many.
  std::vector<double> step;
  std::vector<double> epoch;
  std::vector<double> time;
};

struct ChartSeries {
  size_t run = 0;
  /// "train", "validation", "interval" (of single steps), or the part of a step in a stack.
  std::string role;
  ChartPositions x;
  /// As many as positions; NaN and infinities are kept.
  std::vector<double> y;
};

struct Chart {
  enum class Kind {
    Lines,
    /// Series are added up.
    Stack,
  };
  /// What the numbers are: for axes and readings.
  enum class Unit { Plain, Seconds, Bytes, PerSecond };

  std::string id;
  std::string title;
  /// Where it is shown: "curves", "speed" or "memory".
  std::string section;
  Kind kind = Kind::Lines;
  Unit unit = Unit::Plain;
  /// The axis begins at zero.
  bool from_zero = false;
  std::vector<ChartSeries> series;
};

/// At most this many points of a series are kept.
inline constexpr size_t kChartPoints = 600;

/// Returns the indices of the points to draw: all, or those with the smallest and largest value of each part of the
/// series, the first and the last, and the first that is not finite of each part.
std::vector<size_t> visible_points(const std::vector<double>& values, size_t limit = kChartPoints);

/// The curves of all runs: losses, each metric, learning rate, throughput, parts of a step, memory. Charts without a
/// point are left out.
std::vector<Chart> make_charts(const std::vector<RunData>& runs);

/// The form that the script of the page reads. Values that are not finite are strings, as in the files of runs.
Json to_json(const Chart& chart);

}  // namespace lockstep::tools::reports

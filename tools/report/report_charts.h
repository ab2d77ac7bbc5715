#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/run_data.h"
#include "tools/report/run_positions.h"

/// The curves of a report, reduced to what can be seen.
namespace lockstep::tools::reports {

struct ChartSeries {
  size_t run = 0;
  /// "train", "validation", "interval" (of single steps), or the part of a step in a stack.
  std::string role;
  ChartPositions x;
  /// Where the stretches begin that the values hold for; they end at `x`. Empty where values belong to points.
  ChartPositions begin;
  /// As many as positions; NaN and infinities are kept.
  std::vector<double> y;

  bool has_stretches() const { return !begin.step.empty(); }
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

/// Where there are more runs, what each run has for itself is folded.
inline constexpr size_t kManyRuns = 6;
/// At most this many points of a series are kept.
inline constexpr size_t kChartPoints = 600;

/// Returns the indices of the points to draw: all, or those with the smallest and largest value of each part of the
/// series, the first and the last, and the first that is not finite of each part.
std::vector<size_t> visible_points(const std::vector<double>& values, size_t limit = kChartPoints);

/// The curves of all runs: losses, each metric, learning rate, throughput, parts of a step, memory. Charts without a
/// point are left out.
std::vector<Chart> make_charts(const std::vector<RunData>& runs);

/// The number of a part of a step, which its colour and hatching have.
size_t part_index(const std::string& name);

/// The form that the script of the page reads: the positions of a stack are in its first series, and a stretch begins
/// where the one before it ends, apart from `gaps`. Values that are not finite are strings, as in the files of runs.
Json to_json(const Chart& chart);

}  // namespace lockstep::tools::reports

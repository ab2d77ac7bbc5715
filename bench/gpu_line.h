#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::bench {

/// A value of a result of `bench gpu`.
using GpuValue = std::variant<bool, int64_t, double, std::string>;
/// A result of `bench gpu`: names and values in the order in which they are printed. Times are the medians of turns.
using GpuLine = std::vector<std::pair<std::string, GpuValue>>;

/// Adds a ratio, and the goal that it must not exceed; it is not met unless the work was the right one.
inline void add_ratio(GpuLine& line, double ratio, double goal, bool is_right) {
  line.emplace_back("ratio", ratio);
  line.emplace_back("goal", goal);
  line.emplace_back("met", is_right && ratio <= goal);
}

/// Adds a fraction, and the goal that it must reach; it is not met unless the work was the right one.
inline void add_fraction(GpuLine& line, const char* name, double fraction, double goal, bool is_right = true) {
  line.emplace_back(name, fraction);
  line.emplace_back("goal", goal);
  line.emplace_back("met", is_right && fraction >= goal);
}

}  // namespace lockstep::bench

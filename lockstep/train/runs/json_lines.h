#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/api.h"

/// Internal: the JSON files of run folders. Only for sources: nlohmann-json is no part of the interface.
namespace lockstep::detail {

using RunJson = nlohmann::ordered_json;

/// A number; "NaN", "Infinity" or "-Infinity" where it is not finite.
RunJson json_number(double value);
/// Six significant digits.
double rounded(double value);
/// What is not UTF-8 is replaced.
LOCKSTEP_API std::string json_text(const RunJson& json, int indent = -1);
/// "2026-01-31T12:00:00Z".
std::string iso_time(double unix_seconds);
double unix_time();

/// A file with one JSON object in each line.
class LOCKSTEP_API JsonLines {
 public:
  explicit JsonLines(std::string path) : path_(std::move(path)) {}
  /// Calls `use` with each line that is an object. DataError where the file cannot be read.
  void each(const std::function<void(const RunJson&)>& use) const;
  /// Removes all other lines, those included that are no objects. Makes the file where there is none. DataError with
  /// path and reason.
  void keep(const std::function<bool(const RunJson&)>& is_kept);
  /// Adds a line. Where it cannot be written, it is left out, nothing of it stays in the file, and the log says so
  /// once.
  void append(const RunJson& line);
  /// How many lines could not be written since `keep`.
  int64_t num_missing() const { return num_missing_; }

 private:
  std::string path_;
  int64_t num_missing_ = 0;
  /// Where a part of a line begins that could not be removed yet.
  std::optional<int64_t> torn_at_ = std::nullopt;
};

}  // namespace lockstep::detail

#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

/// Internal: the JSON files of run folders. Only for sources: nlohmann-json is no part of the interface.
namespace lockstep::detail {

using RunJson = nlohmann::ordered_json;

/// A number; "NaN", "Infinity" or "-Infinity" where it is not finite.
RunJson json_number(double value);
/// What is not UTF-8 is replaced.
std::string json_text(const RunJson& json, int indent = -1);
/// "2026-01-31T12:00:00Z".
std::string iso_time(double unix_seconds);
double unix_time();

/// A file with one JSON object in each line. Functions throw DataError with path and reason.
class JsonLines {
 public:
  explicit JsonLines(std::string path) : path_(std::move(path)) {}
  /// Removes all other lines, those included that are no objects. Makes the file where there is none.
  void keep(const std::function<bool(const RunJson&)>& is_kept) const;
  /// Adds a line by one write to the file.
  void append(const RunJson& line) const;

 private:
  std::string path_;
};

}  // namespace lockstep::detail

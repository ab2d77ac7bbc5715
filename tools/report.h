#pragma once

#include <nlohmann/json.hpp>

namespace lockstep::tools {

using Json = nlohmann::ordered_json;

enum class ReportStyle {
  /// `name value` pairs in one line, for people.
  Text,
  /// One JSON object in one line.
  Json,
};

/// Prints a result on standard output.
void report(const Json& result, ReportStyle style);

}  // namespace lockstep::tools

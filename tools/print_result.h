#pragma once

#include <nlohmann/json.hpp>

namespace lockstep::tools {

using Json = nlohmann::ordered_json;

enum class ResultStyle {
  /// `name value` pairs in one line, for people.
  Text,
  /// One JSON object in one line.
  Json,
};

/// Prints a result on standard output.
void print_result(const Json& result, ResultStyle style);

}  // namespace lockstep::tools

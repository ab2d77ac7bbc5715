#pragma once

#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"

namespace lockstep::data::tests {

/// Returns the path of `tests/fixtures/<name>`.
inline std::string fixture(const std::string& name) { return LOCKSTEP_FIXTURES "/" + name; }

/// Reads `tests/fixtures/<folder>/expected.json`.
inline nlohmann::json expected_answers(const std::string& folder) {
  std::ifstream file(fixture(folder + "/expected.json"));
  return nlohmann::json::parse(file);
}

/// Returns the bytes that pairs of digits stand for.
inline std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

using lockstep::tests::message_of;

}  // namespace lockstep::data::tests

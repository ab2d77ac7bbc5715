#pragma once

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

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

/// Returns the message of the `Type` that `call` throws, without the place in the sources; fails the test if there is
/// none.
template <class Type = DataError, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Type& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace lockstep::data::tests

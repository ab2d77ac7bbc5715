#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/test_folder.h"

/// The JSON files that trainings write.
namespace lockstep::tests {

inline std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline nlohmann::json json_of(const std::string& path) { return nlohmann::json::parse(bytes_of(path)); }

}  // namespace lockstep::tests

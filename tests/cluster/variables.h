#pragma once

#include <map>
#include <string>

/// Environment variables of launchers, for tests of resolvers.
namespace lockstep::tests {

using Variables = std::map<std::string, std::string>;

/// Returns the variables with some replaced or added.
inline Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

/// Reads the port behind the last colon.
inline int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

}  // namespace lockstep::tests

#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/api.h"

namespace lockstep {

/// Where resolvers look variables up: in this process, or in a table that stands for another one.
///
///     MPIClusterResolver resolver({.variables = Environment({{"OMPI_COMM_WORLD_RANK", "1"}, ...})});
///
/// Cheap to copy; copies share what was set.
class LOCKSTEP_API Environment {
 public:
  /// The environment of this process, read whenever it is asked.
  Environment() = default;
  /// These variables and no others.
  explicit Environment(std::map<std::string, std::string> variables);
  explicit Environment(std::initializer_list<std::pair<const std::string, std::string>> variables);

  /// Returns the variable's value, or nothing where it is not set.
  std::optional<std::string> get(const std::string& name) const;
  /// Returns the variable's value, or nothing where it is not set or empty.
  std::optional<std::string> given(const std::string& name) const;
  /// Sets a variable. In the environment of this process it is for the start of a program, before there are threads.
  void set(const std::string& name, const std::string& value) const;

 private:
  std::shared_ptr<std::map<std::string, std::string>> variables_;  // null: this process's
};

}  // namespace lockstep

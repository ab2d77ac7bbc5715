#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/api.h"

namespace lockstep {

/// The environment variables that resolvers read: those of this process, or a table.
///
///     MPIClusterResolver resolver({.variables = Environment({{"OMPI_COMM_WORLD_RANK", "1"}, ...})});
///
/// Cheap to copy; copies share their variables.
class LOCKSTEP_API Environment {
 public:
  /// The environment of this process, read at every call.
  Environment() = default;
  /// These variables and no others.
  explicit Environment(std::map<std::string, std::string> variables);
  explicit Environment(std::initializer_list<std::pair<const std::string, std::string>> variables);

  /// Returns the variable's value, or nothing where it is not set.
  std::optional<std::string> get(const std::string& name) const;
  /// Returns the variable's value, or nothing where it is not set or empty.
  std::optional<std::string> given(const std::string& name) const;
  /// Sets a variable. In the environment of this process other threads may read variables meanwhile, but not set them.
  void set(const std::string& name, const std::string& value) const;

 private:
  std::shared_ptr<std::map<std::string, std::string>> variables_;  // null: this process's
};

}  // namespace lockstep

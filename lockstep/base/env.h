#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/api.h"

/// Every environment variable that lockstep reads, in one table (env.cpp): `lockstep doctor` prints it.
///
/// A variable that is not set has its default; an invalid value throws ValueError that lists the valid ones.
///
///     if (env::flag("LOCKSTEP_ONEDNN")) ...
namespace lockstep::env {

/// One row of the table.
struct Variable {
  std::string_view name;
  /// The value of an unset variable; empty where there is none.
  std::string_view default_value;
  /// One sentence, for people.
  std::string_view meaning;
};

/// Returns the table.
LOCKSTEP_API std::span<const Variable> variables();

/// Returns the variable's value, or nothing where it is not set or empty. `name` must be in the table; so it must be in
/// all functions below.
LOCKSTEP_API std::optional<std::string> given(std::string_view name);

/// Returns its value, or the default.
LOCKSTEP_API std::string text(std::string_view name);

/// Reads 1, true, on, yes and 0, false, off, no, in any case.
LOCKSTEP_API bool flag(std::string_view name);

/// Reads a whole number.
LOCKSTEP_API int64_t integer(std::string_view name);

/// Reads a number of seconds, fractions allowed.
LOCKSTEP_API std::chrono::milliseconds seconds(std::string_view name);

}  // namespace lockstep::env

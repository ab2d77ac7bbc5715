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
/// A variable that is not set has its default; one that cannot be understood is a ValueError that says what may be
/// given.
///
///     if (env::flag("LOCKSTEP_ONEDNN")) ...
namespace lockstep::env {

/// One row of the table.
struct Variable {
  std::string_view name;
  /// What an unset variable means; empty where there is no plain value.
  std::string_view default_value;
  /// One sentence, for people.
  std::string_view meaning;
};

/// Returns the table.
LOCKSTEP_API std::span<const Variable> variables();

/// Returns what the variable is set to, or nothing when it is not set or empty. `name` must be in the table, here and
/// below.
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

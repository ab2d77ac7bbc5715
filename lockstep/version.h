#pragma once

#include <string_view>

/// The version of lockstep: `major.minor.patch`. Before 1.0 a new minor version may change the API.
namespace lockstep {

/// The version of these headers. The build reads it from this line.
inline constexpr std::string_view kVersion = "0.1.0";

/// Returns the version of these headers as text.
constexpr std::string_view version() { return kVersion; }

}  // namespace lockstep

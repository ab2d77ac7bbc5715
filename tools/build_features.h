#pragma once

#include <string>

namespace lockstep::tools {

/// What this build has of a library that lockstep can do without: its version, or "no" and what is missing then.
std::string openssl_state();
std::string curl_state();

}  // namespace lockstep::tools

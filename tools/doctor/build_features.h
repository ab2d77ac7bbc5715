#pragma once

#include <string>

namespace lockstep::tools {

/// The state of an optional library in this build: its version, or "no" and what is missing.
std::string openssl_state();
std::string curl_state();

}  // namespace lockstep::tools

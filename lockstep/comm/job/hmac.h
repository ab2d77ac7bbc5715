#pragma once

#include <string>
#include <string_view>

namespace lockstep::comm::job {

/// Raises NotImplementedError where this library was built without what tokens need.
void check_tokens_are_supported();

/// Returns the 32 bytes of HMAC-SHA256.
std::string hmac_sha256(std::string_view key, std::string_view content);

}  // namespace lockstep::comm::job

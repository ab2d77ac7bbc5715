#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep::comm::job {

/// Returns unpredictable bytes from the system.
std::string random_bytes(size_t count);

/// Compares in a time that does not depend on where the first difference is.
bool equal_in_constant_time(std::string_view left, std::string_view right);

/// Whether the library was built with OpenSSL, which tokens need.
LOCKSTEP_API bool tokens_are_supported();

/// Throws c10::NotImplementedError where the library was built without OpenSSL, which tokens need.
void check_tokens_are_supported();

/// Returns the 32 bytes of HMAC-SHA256. Needs OpenSSL.
std::string hmac_sha256(std::string_view key, std::string_view content);

}  // namespace lockstep::comm::job

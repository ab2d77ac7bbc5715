#pragma once

#include <cstddef>
#include <string>

namespace lockstep::comm::job {

/// Returns bytes that nobody can foresee.
std::string random_bytes(size_t count);

}  // namespace lockstep::comm::job

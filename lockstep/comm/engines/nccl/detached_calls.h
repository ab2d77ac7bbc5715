#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace lockstep::comm {

/// Makes all calls at once, each on a thread of its own: one rank's may wait for another's. Waits until they have
/// returned, for `limit` at most, and returns how many have not. Those go on, with what they hold.
/// What a call throws is logged.
size_t call_detached(std::vector<std::function<void()>> calls, std::chrono::milliseconds limit);

}  // namespace lockstep::comm

#pragma once

#include <cstdint>

#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// Returns what added to this member's steady clock gives that of worker 0, in nanoseconds: 0 where all workers run on
/// one machine, which has one clock. Else it is measured; the error is at most half of the shortest round trip.
LOCKSTEP_API int64_t clock_offset(Job& job);

/// Measures it also on one machine, by `rounds` requests: the one with the shortest round trip counts.
LOCKSTEP_API int64_t measured_clock_offset(Job& job, int rounds = 32);

}  // namespace lockstep::comm

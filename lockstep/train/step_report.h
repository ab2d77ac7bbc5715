#pragma once

#include <cstdint>

#include "lockstep/api.h"

/// Internal: what the launcher learns of the steps of this process, through the file that it gives
/// (LOCKSTEP_STEP_FILE). Without one the calls do nothing.
namespace lockstep::detail {

/// The training goes on after `step` steps.
LOCKSTEP_API void report_resumed_step(int64_t step);
/// `step` steps are done.
LOCKSTEP_API void report_finished_step(int64_t step);

}  // namespace lockstep::detail

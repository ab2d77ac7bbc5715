#pragma once

#include <cstdint>

#include "lockstep/api.h"

/// Internal: what the launcher learns of the steps of this process, through the file that it gives
/// (LOCKSTEP_STEP_FILE), and what dumps say of them.
namespace lockstep::detail {

/// The training goes on after `step` steps.
LOCKSTEP_API void report_resumed_step(int64_t step);
/// `step` steps are done.
LOCKSTEP_API void report_finished_step(int64_t step);

}  // namespace lockstep::detail

#pragma once

#include "lockstep/train/runs/json_lines.h"

/// Internal: the times that a training was started, in run.json.
namespace lockstep::detail {

/// The description of a training that begins: that of its first start, with a list "attempts" of all starts. Each one
/// has "from_step", "started", "ended", "state", "reason", "host", "pid", "command", "git", and members that differ
/// from those of the first start. `now` describes this start, and `before` is run.json of the earlier ones, or no
/// object.
RunJson with_attempts(RunJson now, const RunJson& before);

/// Says in the description and in its last attempt how the training goes on or has ended.
void set_state(RunJson& run, const std::string& state, const std::string& reason, const RunJson& ended);

/// The newest attempt; the description itself where it has no list.
RunJson last_attempt(const RunJson& run);

}  // namespace lockstep::detail

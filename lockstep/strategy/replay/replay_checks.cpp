#include "lockstep/strategy/replay/replay_checks.h"

#include <string>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::detail {

xla::ReplayChecks replay_checks_from_environment() {
  const std::string text = env::text("LOCKSTEP_PURE_CHECK");
  if (text == "auto") return {};
  if (text == "off") return {.every = 0, .at = {}};
  const int64_t every = env::integer("LOCKSTEP_PURE_CHECK");
  LOCKSTEP_CHECK_VALUE(every >= 0, "[environment] the variable must be auto, off, or a number of calls that is not ",
                       "negative: LOCKSTEP_PURE_CHECK=", every);
  return {.every = every, .at = {}};
}

xla::ReplayChecks replay_checks_every(int64_t calls) {
  LOCKSTEP_CHECK_VALUE(calls >= 0, "[pure] the number of calls between two checks must not be negative: calls=", calls);
  return {.every = calls, .at = {}};
}

}  // namespace lockstep::detail

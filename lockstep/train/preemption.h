#pragma once

#include "lockstep/api.h"

/// Internal: SIGTERM as the notice that this process will be ended.
namespace lockstep::detail {

/// For as long as one lives, the first SIGTERM is noted, and a handler that was there before is called. Others within a
/// second are taken for the same notice; a later one ends the process by the default action.
class LOCKSTEP_API PreemptionNotice {
 public:
  PreemptionNotice();
  ~PreemptionNotice();
  PreemptionNotice(const PreemptionNotice&) = delete;
  PreemptionNotice& operator=(const PreemptionNotice&) = delete;

  /// Whether SIGTERM has come since the first one was made.
  static bool has_come();
};

}  // namespace lockstep::detail

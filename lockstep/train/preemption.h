#pragma once

#include "lockstep/api.h"

/// Internal: SIGTERM as the notice that this process will be ended, and SIGINT as the request to end it.
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

/// Notes SIGINT, which Ctrl-C sends, unless it is ignored. Others within a tenth of a second are taken for the same
/// one: a terminal and a launcher both send it.
class LOCKSTEP_API InterruptNotice {
 public:
  InterruptNotice();
  ~InterruptNotice();
  InterruptNotice(const InterruptNotice&) = delete;
  InterruptNotice& operator=(const InterruptNotice&) = delete;

  static bool has_come();
};

}  // namespace lockstep::detail

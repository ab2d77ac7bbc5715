#pragma once

#include <cstdint>
#include <ostream>
#include <source_location>

#include "lockstep/api.h"

namespace lockstep::comm {

/// Where in the user's program a collective was called: for errors and for the recorder.
struct LOCKSTEP_API CallSite {
  /// A string literal, or null where it is not known.
  const char* file = nullptr;
  uint32_t line = 0;

  /// The site that the calling thread is at, by the innermost CallSiteScope.
  static CallSite current();
  explicit operator bool() const { return file != nullptr; }
};

/// Prints `train.cpp:57`, without folders.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const CallSite& site);

/// Says, for as long as it lives, where the calls of this thread come from. The outermost one counts: it is the user's.
class LOCKSTEP_API CallSiteScope {
 public:
  explicit CallSiteScope(const std::source_location& where);
  /// For a thread that works for another one, which was at `site`.
  explicit CallSiteScope(const CallSite& site);
  ~CallSiteScope();
  CallSiteScope(const CallSiteScope&) = delete;
  CallSiteScope& operator=(const CallSiteScope&) = delete;

 private:
  bool outermost_;
};

}  // namespace lockstep::comm

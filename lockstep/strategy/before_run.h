#pragma once

#include <cstddef>

namespace lockstep::detail {

/// Inside: something that wants to act on the calling thread before replicas start, such as a module whose mode
/// changed.
class BeforeRun {
 public:
  virtual ~BeforeRun() = default;
  virtual void before_run() = 0;
  /// A number that changes where a step that was traced before would now be traced otherwise.
  virtual size_t fingerprint() const { return 0; }
};

}  // namespace lockstep::detail

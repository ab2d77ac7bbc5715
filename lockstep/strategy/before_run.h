#pragma once

namespace lockstep::detail {

/// Inside: something that wants to act on the calling thread before replicas start, such as a module whose mode
/// changed.
class BeforeRun {
 public:
  virtual ~BeforeRun() = default;
  virtual void before_run() = 0;
};

}  // namespace lockstep::detail

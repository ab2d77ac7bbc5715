#pragma once

#include <cstdint>

#include "lockstep/api.h"

namespace lockstep::trace {

/// Spans of the calling thread belong to this step during its lifetime, also after the update of that step.
class LOCKSTEP_API StepScope {
 public:
  explicit StepScope(int64_t step);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  int64_t outer_;
};

}  // namespace lockstep::trace

#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

/// Runs everything on one device: for writing and testing a program before it runs on several.
///
/// Variables are ordinary ones on that device, `run` returns what the function returns, `reduce` and `gather` change
/// nothing.
class LOCKSTEP_API OneDeviceStrategy : public Strategy {
 public:
  /// Takes a device string: "/cpu:0", "GPU:0", "cuda:0", ... . The device must exist.
  explicit OneDeviceStrategy(const std::string& device);
};

}  // namespace lockstep

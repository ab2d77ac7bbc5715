#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: what a module does around the updates of its parameters. Each replica calls it on its own thread, all of
/// them in the same order.
class LOCKSTEP_API UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;
  virtual void before_update(int replica) = 0;
  virtual void after_update(int replica) = 0;
  /// At the end of a run: returns the buffers of a replica, with their names, that all replicas have with equal values.
  virtual std::vector<std::pair<std::string, at::Tensor>> equal_buffers(int replica) const = 0;
};

}  // namespace lockstep::detail
